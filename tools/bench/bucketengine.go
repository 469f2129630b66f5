package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/minio/minio-go/v7"

	"github.com/ctxgate/ctxgate/internal/testkit/redisserver"
	"github.com/ctxgate/ctxgate/internal/testkit/s3server"
)

// openBucket starts a Redis server and an S3 server, with a gateway that stores originals in the bucket. Both count as the engine.
func openBucket(dir string) (*engine, error) {
	g, err := openRedis("redis and a bucket", redisserver.Single)
	if err != nil {
		return g, err
	}
	dir = filepath.Join(dir, "bucket")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return g, err
	}
	server, err := s3server.New(dir)
	if err != nil {
		return g, err
	}
	closeRedis, redisCounters, redisBare := g.close, g.counters, g.bare
	g.close = func() { closeRedis(); server.Close() }
	g.pids = append(g.pids, server.PID())
	// Secrets are not in configuration files.
	if err := errors.Join(os.Setenv("AWS_ACCESS_KEY_ID", s3server.AccessKey), os.Setenv("AWS_SECRET_ACCESS_KEY", s3server.SecretKey)); err != nil {
		return g, err
	}
	g.settings += fmt.Sprintf("[state.blobs]\nurl = \"s3://%s/bench\"\nendpoint = %q\nregion = \"us-east-1\"\n", s3server.Bucket, server.Proxy.URL)
	g.counters = func() (engineWork, error) {
		w, err := redisCounters()
		w.puts, w.gets = server.Proxy.Count(http.MethodPut), server.Proxy.Count(http.MethodGet)
		return w, err
	}
	g.bare = func(ctx context.Context, kind callKind, c engineCost, e engineEffort) (time.Duration, error) {
		ofRedis, err := redisBare(ctx, kind, c, e)
		if err != nil || c.work.puts == 0 {
			return ofRedis, err
		}
		ofBucket, err := g.putLoop(ctx, server, c)
		return ofRedis + ofBucket, err
	}
	return g, nil
}

const barePuts = 100

// putLoop is the engine's processor time for the PUTs of a call, when a loop makes them: as many originals in each object.
func (g *engine) putLoop(ctx context.Context, server *s3server.Server, c engineCost) (time.Duration, error) {
	client, err := server.Client()
	if err != nil {
		return 0, err
	}
	object := bytes.Repeat([]byte("x"), int(int64(c.calls)*storedBytes/c.work.puts))
	before := g.ownTime()
	for i := range barePuts {
		if _, err := client.PutObject(ctx, s3server.Bucket, fmt.Sprintf("bare/%d", i), bytes.NewReader(object), int64(len(object)), minio.PutObjectOptions{}); err != nil {
			return 0, err
		}
	}
	return (g.ownTime() - before) * time.Duration(c.work.puts) / barePuts / time.Duration(c.calls), nil
}

// storedBytes is about what an original of keptBytes takes in a segment.
const storedBytes = 2000
