package redis

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"
	"golang.org/x/sync/semaphore"

	"github.com/ctxgate/ctxgate/fault"
)

// The limits of one pipeline and of the queue before it. A write that finds the queue full waits until its context ends.
const (
	maxQueuedJobs  = 256
	maxBatchJobs   = 128
	maxBatchBytes  = 4 << 20
	maxQueuedBytes = 32 << 20 // of jobs that wait or run; their callers may have left
	maxPendingAcks = 1 << 12  // of writes that replicas have, which is not written down yet

	batchLimit = 5 * time.Second // how long a pipeline may take, if no caller's context ends earlier
)

// writer writes to one primary, on several connections. While all of them wait for replicas, jobs gather in the queue; the next
// pipeline takes them all, so that one WAIT serves many.
type writer struct {
	addr      string
	client    rueidis.Client
	bases     *[partitionCount]string
	isWaitOn  bool         // WAIT for all replicas
	required  atomic.Int64 // replicas that are known, and must have a write
	connected atomic.Int64 // replicas that were connected when ROLE was last asked
	blocked   atomic.Pointer[fault.Error]
	missing   atomic.Int64 // replicas that did not have the last write in time

	queue       chan *job
	queuedBytes *semaphore.Weighted
	stopCtx     context.Context
	cancel      context.CancelFunc
	conns       sync.WaitGroup
	onError     func()

	ackedMu sync.Mutex
	acked   []ackedGroup
}

// ackedGroup is a group whose write of a token is on all replicas.
type ackedGroup struct {
	partition    int
	group, token string
}

// command is a script, or with none a plain command, of one partition.
type command struct {
	partition int
	script    *script
	keys      []string
	args      []string

	group, token string // of a write that is marked until replicas have it
	reply        rueidis.RedisMessage
	err          error
}

// job are one caller's commands for a primary. The writer owns them until ack has been received.
type job struct {
	ctx      context.Context
	commands []*command
	size     int64
	skipped  error // why the commands were not sent
	ack      chan error
}

func newWriter(addr string, client rueidis.Client, bases *[partitionCount]string, isWaitOn bool, onError func()) *writer {
	w := &writer{
		addr: addr, client: client, bases: bases, isWaitOn: isWaitOn, onError: onError,
		queue: make(chan *job, maxQueuedJobs), queuedBytes: semaphore.NewWeighted(maxQueuedBytes),
	}
	w.stopCtx, w.cancel = context.WithCancel(context.Background())
	for range writerConns {
		w.conns.Go(w.runConn)
	}
	return w
}

// stopAndWait ends the connections after the pipelines they are in. Jobs still in the queue do not run.
func (w *writer) stopAndWait() {
	w.cancel()
	w.conns.Wait()
}

var errMoved = errors.New("the primary is another one now")

// submit runs commands in the next pipeline and returns when they are durable, or when ctx ends, whichever is first. After an
// error they may or may not have happened.
func (w *writer) submit(ctx context.Context, commands []*command) error {
	if blocked := w.blocked.Load(); blocked != nil {
		return blocked
	}
	j := &job{ctx: ctx, commands: commands, ack: make(chan error, 1)}
	for _, c := range commands {
		for _, a := range c.args {
			j.size += int64(len(a))
		}
	}
	j.size = min(j.size, maxQueuedBytes)
	waitCtx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(w.stopCtx, cancel)()
	if err := w.queuedBytes.Acquire(waitCtx, j.size); err != nil {
		return errors.Join(ctx.Err(), errMoved)
	}
	select {
	case w.queue <- j:
	case <-waitCtx.Done():
		w.queuedBytes.Release(j.size)
		return errors.Join(ctx.Err(), errMoved)
	}
	select {
	case err := <-j.ack:
		return err
	case <-ctx.Done():
		return ctx.Err()
	case <-w.stopCtx.Done():
	}
	w.conns.Wait()
	select { // this may have been the last job
	case err := <-j.ack:
		return err
	default:
		return errMoved
	}
}

// runConn is one connection. It is opened at the first job, and again after an error.
func (w *writer) runConn() {
	var conn rueidis.DedicatedClient
	var release func()
	closeConn := func() {
		if conn != nil {
			conn.Close()
			release()
			conn = nil
		}
	}
	defer closeConn()
	for w.stopCtx.Err() == nil {
		var batch []*job
		select {
		case j := <-w.queue:
			batch = w.collectBatch(j)
		case <-w.stopCtx.Done():
			return
		}
		ctx, cancel := batchContext(batch)
		var err error
		if conn == nil {
			conn, release = w.client.Dedicate()
			err = loadScripts(ctx, conn)
		}
		if err == nil {
			err = w.runBatch(ctx, conn, batch)
		}
		cancel()
		if err != nil {
			closeConn()
			w.onError()
		}
		for _, j := range batch {
			w.queuedBytes.Release(j.size)
			if err != nil {
				j.ack <- err
			} else {
				j.ack <- j.skipped
			}
		}
	}
}

// collectBatch takes what waits in the queue, up to the limits of one pipeline.
func (w *writer) collectBatch(first *job) []*job {
	batch, size := []*job{first}, first.size
	for len(batch) < maxBatchJobs && size < maxBatchBytes {
		select {
		case j := <-w.queue:
			batch, size = append(batch, j), size+j.size
		default:
			return batch
		}
	}
	return batch
}

// batchContext ends when no caller of the batch waits any more. No single caller's context may end the pipeline of all.
func batchContext(batch []*job) (context.Context, context.CancelFunc) {
	latest := time.Time{}
	limit := time.Now().Add(batchLimit)
	for _, j := range batch {
		deadline, ok := j.ctx.Deadline()
		if !ok {
			latest = limit
			break
		}
		if deadline.After(latest) {
			latest = deadline
		}
	}
	if latest.After(limit) {
		latest = limit
	}
	return context.WithDeadline(context.Background(), latest)
}

// waitMillis is how long replicas have for a write: most of the time that is left, so that the answer arrives in time.
func waitMillis(ctx context.Context) int64 {
	deadline, _ := ctx.Deadline() // every pipeline has one
	return max(time.Until(deadline).Milliseconds()*4/5, 10)
}

func loadScripts(ctx context.Context, conn rueidis.DedicatedClient) error {
	var loads []rueidis.Completed
	for _, s := range allScripts {
		loads = append(loads, conn.B().ScriptLoad().Script(s.text).Build())
	}
	for _, r := range conn.DoMulti(ctx, loads...) {
		if err := r.Error(); err != nil {
			return fmt.Errorf("loading scripts: %w", err)
		}
	}
	return nil
}

// runBatch sends the commands of all jobs and WAIT in one pipeline. The error is of the connection, or of WAIT, and all jobs'.
func (w *writer) runBatch(ctx context.Context, conn rueidis.DedicatedClient, batch []*job) error {
	var commands []*command
	for _, j := range batch {
		if j.skipped = j.ctx.Err(); j.skipped == nil {
			commands = append(commands, j.commands...)
		}
	}
	if len(commands) == 0 {
		return nil
	}
	acks := w.takeAcked()
	replies, err := w.runPipeline(ctx, conn, append(acks, commands...))
	if err != nil {
		return err
	}
	var again []*command
	for _, c := range commands {
		if isReply(c.err, "NOSCRIPT") { // as after SCRIPT FLUSH
			again = append(again, c)
		}
	}
	if len(again) > 0 {
		if err := loadScripts(ctx, conn); err != nil {
			return err
		}
		if replies, err = w.runPipeline(ctx, conn, again); err != nil {
			return err
		}
	}
	if !w.isWaitOn {
		return nil
	}
	if err := w.checkReplicas(ctx, conn, replies); err != nil {
		return err
	}
	w.addAcked(commands)
	return nil
}

// runPipeline returns the replies to WAIT and ROLE, which follow the commands on the same connection.
func (w *writer) runPipeline(ctx context.Context, conn rueidis.DedicatedClient, commands []*command) ([]rueidis.RedisResult, error) {
	pipeline := make([]rueidis.Completed, 0, len(commands)+2)
	for _, c := range commands {
		pipeline = append(pipeline, c.build(conn.B()))
	}
	if w.isWaitOn {
		pipeline = append(pipeline, conn.B().Wait().Numreplicas(max(w.required.Load(), w.connected.Load())).Timeout(waitMillis(ctx)).Build(), conn.B().Role().Build())
	}
	replies := conn.DoMulti(ctx, pipeline...)
	for i, c := range commands {
		if err := replies[i].NonRedisError(); err != nil {
			return nil, err
		}
		c.reply, c.err = replies[i].ToMessage()
	}
	return replies[len(commands):], nil
}

func (c *command) build(b rueidis.Builder) rueidis.Completed {
	if c.script == nil {
		return b.Arbitrary(c.args...).Build()
	}
	return b.Arbitrary("EVALSHA", c.script.sha, strconv.Itoa(len(c.keys))).Keys(c.keys...).Args(c.args...).Build()
}

// checkReplicas returns nil if all replicas have the writes before the WAIT: those that are known, and those that are connected,
// which may be more. Only then is any server that becomes the primary complete.
func (w *writer) checkReplicas(ctx context.Context, conn rueidis.DedicatedClient, replies []rueidis.RedisResult) error {
	for {
		acked, err := replies[0].AsInt64()
		if err != nil {
			return fmt.Errorf("WAIT: %w", err)
		}
		connected, err := connectedReplicas(replies[1])
		if err != nil {
			return err
		}
		required := max(w.required.Load(), w.connected.Swap(connected))
		need := max(w.required.Load(), connected)
		if acked >= need {
			w.missing.Store(0)
			return nil
		}
		if connected <= required {
			return w.block(need - acked)
		}
		// A replica that nobody told us about: it has to have the writes, too.
		replies = conn.DoMulti(ctx, conn.B().Wait().Numreplicas(connected).Timeout(waitMillis(ctx)).Build(), conn.B().Role().Build())
		if n, err := replies[0].AsInt64(); err == nil && n < connected {
			return w.block(connected - n)
		}
	}
}

// block fails all writes at once until a probe finds the replicas complete again.
func (w *writer) block(missing int64) error {
	w.missing.Store(missing)
	err := fault.New(fault.Unavailable, fmt.Sprintf("%d replicas of the store at %s are missing: nothing can be kept until they are back", missing, w.addr))
	w.blocked.Store(err)
	w.onError()
	return err
}

// connectedReplicas reads the answer to ROLE, and fails if the server is no primary.
func connectedReplicas(reply rueidis.RedisResult) (int64, error) {
	role, err := reply.ToArray()
	if err != nil {
		return 0, fmt.Errorf("ROLE: %w", err)
	}
	if name, _ := role[0].ToString(); name != "master" || len(role) < 3 {
		return 0, errMoved
	}
	list, err := role[2].ToArray()
	return int64(len(list)), err
}

// probe reads how many replicas are connected. If writes are blocked, it also makes a write and waits for all replicas.
func (w *writer) probe(ctx context.Context, key string) error {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	connected, err := connectedReplicas(w.client.Do(ctx, w.client.B().Role().Build()))
	if err != nil {
		return err
	}
	w.connected.Store(connected)
	required := max(w.required.Load(), connected)
	if connected < required {
		_ = w.block(required - connected)
		return nil
	}
	if w.blocked.Load() == nil {
		return nil
	}
	conn, release := w.client.Dedicate()
	defer release()
	replies := conn.DoMulti(ctx,
		conn.B().Set().Key(key).Value("1").PxMilliseconds(time.Minute.Milliseconds()).Build(),
		conn.B().Wait().Numreplicas(required).Timeout(waitMillis(ctx)).Build())
	acked, err := replies[1].AsInt64()
	if err != nil {
		conn.Close()
		return fmt.Errorf("probing replicas: %w", errors.Join(replies[0].Error(), err))
	}
	if acked < required {
		_ = w.block(required - acked)
		return nil
	}
	w.missing.Store(0)
	w.blocked.Store(nil)
	return nil
}

// addAcked remembers that the marks of these writes can be removed, with the next pipeline or by flushAcked.
func (w *writer) addAcked(commands []*command) {
	w.ackedMu.Lock()
	defer w.ackedMu.Unlock()
	for _, c := range commands {
		if c.token != "" && c.err == nil && len(w.acked) < maxPendingAcks {
			w.acked = append(w.acked, ackedGroup{c.partition, c.group, c.token})
		}
	}
}

// takeAcked makes the commands that remove marks. A mark that stays costs the next Touch a write, and nothing else.
func (w *writer) takeAcked() []*command {
	w.ackedMu.Lock()
	acked := w.acked
	w.acked = nil
	w.ackedMu.Unlock()
	byPartition := map[int]*command{}
	var commands []*command
	for _, a := range acked {
		c := byPartition[a.partition]
		if c == nil {
			base := w.bases[a.partition]
			c = &command{partition: a.partition, script: ackedScript, keys: []string{base + "t"}, args: []string{base}}
			byPartition[a.partition] = c
			commands = append(commands, c)
		}
		c.args = append(c.args, a.group, a.token)
	}
	return commands
}

// hasAcked reports whether marks wait to be removed.
func (w *writer) hasAcked() bool {
	w.ackedMu.Lock()
	defer w.ackedMu.Unlock()
	return len(w.acked) > 0
}
