package history

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/ctxgate/ctxgate/internal/membudget"
	"github.com/ctxgate/ctxgate/internal/recovertool"
	"github.com/ctxgate/ctxgate/jsonscan"
	"github.com/ctxgate/ctxgate/llm"
)

var (
	errNoMessages = errors.New("it has no list of messages")
	errNoModel    = errors.New("its model is not a string")
	errNoObject   = errors.New("it is not an object")
	errTooMany    = errors.New("it has too many messages, calls and results")
)

// Read reads the conversation of a request. It refuses JSON that is invalid or nested deeper than maxDepth,
// duplicate keys and keys in other case in the objects that it reads, and messages that are not objects.
func Read(codec llm.Codec, body []byte, maxDepth int) (*Dialogue, error) {
	return newReader(codec, body).readRequest(maxDepth)
}

func newReader(codec llm.Codec, body []byte) *reader {
	return &reader{d: &Dialogue{Codec: codec, Breakpoint: -1, body: body}, body: body, ids: map[string]int{}}
}

func (r *reader) readRequest(maxDepth int) (*Dialogue, error) {
	s := jsonscan.New(r.body, maxDepth)
	return r.finishRequest(s, s.Object(r.d.wire().RequestKeys, r.readMember(s)))
}

// finishRequest checks the end of the request and resolves what depends on the whole conversation.
func (r *reader) finishRequest(s *jsonscan.Scanner, err error) (*Dialogue, error) {
	if err == nil {
		err = s.End()
	}
	if err == nil && !r.hasMessages {
		err = errNoMessages
	}
	switch {
	case err != nil && r.inMessages:
		return nil, fmt.Errorf("reading a %s request: message %d: %w", r.d.wire().Name, len(r.d.Messages), err)
	case err != nil:
		return nil, fmt.Errorf("reading a %s request: %w", r.d.wire().Name, err)
	}
	r.resolveCalls()
	return r.d, nil
}

// reader reads one request.
type reader struct {
	d    *Dialogue
	body []byte

	ids           map[string]int   // call numbers by id
	calls         []callState      // by number
	callLog       []callEntry      // every call of the conversation, in order
	total         int              // the sum of the messages' weights so far
	volatileTotal int              // the sum of their bytes that have no weight
	turnOpen      bool             // only results followed the start of the last tool turn
	current       llm.Message      // the message that is being read
	turnCalls     map[string][]int // the last turn's calls by name, from the first that may have no result; only with ResultsByName
	sharedTurns   int              // turns whose memory is shared with an earlier request

	keys              []string      // the keys of the request so far
	hasMessages       bool          // the messages were read, or a text in their place
	inMessages        bool          // the reader is inside the messages
	hasWholeMark      bool          // the request itself has a cache_control
	ttlBeforeMessages time.Duration // CacheTTL before the first message
	wholeMarkTTL      time.Duration // the TTL of that cache_control

	entry *cachedConversation // the cache entry; nil if the conversation is not cached

	memory       *membudget.Scope // charged for the parts of the request
	chargedParts int              // how many parts are charged
}

const (
	maxParts     = 50_000  // the most messages, calls and results of a request
	partBytes    = 1 << 10 // the approximate memory of one part
	partsAtATime = 512
)

// checkLimit limits and charges the parts of a request. It is called before each part is read, because many
// small parts take many times the memory of their bytes.
func (r *reader) checkLimit() error {
	parts := len(r.d.Messages) + len(r.d.Results) + len(r.callLog) + len(r.keys) + len(r.current.Results) + len(r.current.Calls)
	if parts > maxParts {
		return errTooMany
	}
	if parts < r.chargedParts+partsAtATime {
		return nil
	}
	r.chargedParts = parts
	return r.memory.Reserve(partsAtATime * partBytes)
}

// callState is the state of a call id.
type callState struct {
	id   string
	name string
	turn int // the last turn with the call; -1: none yet

	message  int  // that makes the call
	answered bool // the call has a result; only with ResultsByName
}

// callEntry is one call in a message.
type callEntry struct {
	message, number int
	name            string // "" if the call has none
	turn            int
}

func (n callEntry) applyTo(c *callState) {
	if c.turn, c.message, c.answered = n.turn, n.message, false; n.name != "" {
		c.name = n.name
	}
}

// readMember reads a top-level member of the request.
func (r *reader) readMember(s *jsonscan.Scanner) func(key []byte) error {
	return func(key []byte) error {
		if err := r.checkLimit(); err != nil {
			return err
		}
		r.keys = append(r.keys, string(key))
		wire := r.d.wire()
		if string(key) == wire.MessagesKey {
			return r.readMessages(s)
		}
		kind := s.Kind()
		v, err := llm.ReadValue(s)
		if err != nil {
			return err
		}
		switch string(key) {
		case "model":
			if !v.IsString && kind != 'n' {
				return errNoModel
			}
			r.d.Model = string(r.valueReader().Text(v))
		case "stream":
			r.d.Stream = kind == 't'
		case "cache_control": // it marks the last block of the request
			if err := r.valueReader().CheckCacheControl(v); err != nil {
				return err
			}
			r.hasWholeMark = wire.MarkedCacheOnly && kind == '{'
			r.wholeMarkTTL = llm.CacheTTL(v.Of(r.body))
			r.d.CacheTTL = max(r.d.CacheTTL, r.wholeMarkTTL)
		case "prompt_cache_retention":
			if string(r.valueReader().Text(v)) == "24h" {
				r.d.CacheTTL = max(r.d.CacheTTL, 24*time.Hour)
			}
		default:
			if !slices.Contains(wire.PromptKeys, string(key)) {
				r.d.others = append(r.d.others, jsonscan.Field{Key: string(key), Value: v.Span})
				return nil
			}
			r.d.base += v.Len()
			r.d.front = append(r.d.front, v.Span)
			if string(key) == "tools" && v.IsList(r.body) {
				r.d.tools = v.Span
			}
			r.d.CacheTTL = max(r.d.CacheTTL, llm.CacheTTL(v.Of(r.body)))
		}
		return nil
	}
}

func (r *reader) valueReader() *llm.Reader {
	return &llm.Reader{Body: r.body, CheckLimit: r.checkLimit}
}

// readMessages reads the messages. A string in their place, if the shape allows it, has none.
func (r *reader) readMessages(s *jsonscan.Scanner) error {
	if s.Kind() != '[' {
		r.hasMessages = s.Kind() == '"' && r.d.wire().TextInput
		return nil
	}
	r.hasMessages, r.inMessages, r.ttlBeforeMessages = true, true, r.d.CacheTTL
	if err := s.Array(r.readMessage(s)); err != nil {
		return err
	}
	r.endMessages()
	return nil
}

// endMessages is called after the last message, before the members that follow are read.
func (r *reader) endMessages() {
	r.inMessages = false
	r.prepareEntry()
}

// readMessage reads one message.
func (r *reader) readMessage(s *jsonscan.Scanner) func() error {
	values := r.valueReader()
	return func() error {
		if err := r.checkLimit(); err != nil {
			return err
		}
		if s.Kind() != '{' {
			if _, err := s.Skip(); err != nil {
				return err
			}
			return errNoObject
		}
		r.current = llm.Message{Calls: r.current.Calls[:0], Results: r.current.Results[:0]}
		if err := r.d.Codec.ReadMessage(values, s, &r.current); err != nil {
			return err
		}
		r.addMessage(values)
		return nil
	}
}

// addMessage adds the current message to the conversation.
func (r *reader) addMessage(values *llm.Reader) {
	m := &r.current
	if m.ClosesTurn {
		r.turnOpen = false
	}
	if len(m.Calls) > 0 && (!m.JoinsTurn || !r.awaitsResults()) {
		at := len(r.d.Messages)
		r.d.Turns = append(r.d.Turns, Turn{Message: at, End: at + 1})
		r.turnOpen, r.turnCalls = true, nil
	}
	for i, c := range m.Calls {
		id, name := values.Text(c.ID), values.Text(c.Name)
		if len(id) == 0 && r.d.wire().ResultsByName {
			turn := len(r.d.Turns)
			id = llm.UnnamedCallID(name, turn, len(r.d.Messages)-r.d.Turns[turn-1].Message, i)
		}
		r.addCall(id, name)
	}
	if m.JoinsTurn {
		r.extendTurn()
	}
	for i := range m.Results {
		r.addResult(values, &m.Results[i])
	}
	if m.Mark.End > 0 {
		r.d.Breakpoint, r.d.breakpointEnd = len(r.d.Messages), m.Mark.End
	}
	r.d.CacheTTL = max(r.d.CacheTTL, m.Mark.TTL)
	r.total += m.Weight
	r.volatileTotal += m.Len() - m.Weight
	out := Message{Span: m.Span, Bytes: m.Weight, total: r.total, volatileTotal: r.volatileTotal, spoken: m.Spoken, open: r.turnOpen, mark: m.Mark}
	if m.ByUser && m.Spoken {
		out.byUser, out.prompt = true, m.Prompt
	}
	r.d.Messages = append(r.d.Messages, out)
	m.Calls, m.Results = m.Calls[:0], m.Results[:0]
}

// awaitsResults says that the last turn is open and has no results yet.
func (r *reader) awaitsResults() bool {
	n := len(r.d.Results)
	return r.turnOpen && (n == 0 || r.d.Results[n-1].Message < r.d.Turns[len(r.d.Turns)-1].Message)
}

// callNumber returns the number of a call id, a new one if the id is new.
func (r *reader) callNumber(id []byte) int {
	if n, ok := r.ids[string(id)]; ok {
		return n
	}
	c := callState{id: string(id), turn: -1}
	r.ids[c.id] = len(r.calls)
	r.calls = append(r.calls, c)
	return len(r.calls) - 1
}

// extendTurn adds the current message to the last turn if that is still open.
func (r *reader) extendTurn() {
	if r.turnOpen {
		if len(r.d.Turns) <= r.sharedTurns {
			r.ownTurns()
		}
		r.d.Turns[len(r.d.Turns)-1].End = len(r.d.Messages) + 1
	}
}

// ownTurns copies the shared turns so that they can be changed.
func (r *reader) ownTurns() { r.d.Turns, r.sharedTurns = slices.Clone(r.d.Turns), 0 }

// addCall adds a call to the last turn.
func (r *reader) addCall(id, name []byte) {
	n := callEntry{message: len(r.d.Messages), number: r.callNumber(id), turn: len(r.d.Turns) - 1}
	c := &r.calls[n.number]
	if string(name) == c.name {
		n.name = c.name
	} else {
		n.name = string(name)
	}
	n.applyTo(c)
	r.callLog = append(r.callLog, n)
	r.addTurnCall(n)
}

// addTurnCall adds a call of the last turn to turnCalls.
func (r *reader) addTurnCall(n callEntry) {
	if !r.d.wire().ResultsByName {
		return
	}
	if r.turnCalls == nil {
		r.turnCalls = map[string][]int{}
	}
	r.turnCalls[n.name] = append(r.turnCalls[n.name], n.number)
}

// callOf returns the number of the call that a result answers, -1 for none: the call with its id or, where the
// shape has results without ids, or with ids that no call has, the first call of the last turn with its name.
func (r *reader) callOf(values *llm.Reader, in *llm.Result) int {
	id := values.Text(in.CallID)
	if !r.d.wire().ResultsByName {
		if len(id) == 0 {
			return -1
		}
		return r.callNumber(id)
	}
	number, known := r.ids[string(id)]
	if !known || len(id) == 0 {
		number = r.firstUnanswered(string(values.Text(in.Name)))
	}
	switch {
	case number >= 0:
		r.calls[number].answered = true
	case len(id) > 0:
		number = r.callNumber(id)
	}
	return number
}

// firstUnanswered returns the number of the last turn's first call of a tool that has no result; -1 if all have.
func (r *reader) firstUnanswered(name string) int {
	for calls := r.turnCalls[name]; len(calls) > 0; calls = calls[1:] {
		if !r.calls[calls[0]].answered {
			r.turnCalls[name] = calls
			return calls[0]
		}
	}
	return -1
}

// addResult adds a result of the current message.
func (r *reader) addResult(values *llm.Reader, in *llm.Result) {
	res := Result{
		Message: len(r.d.Messages), Turn: -1, Name: UnknownTool, call: -1,
		Chars: in.Chars + max(0, len(in.Texts)-1), Texts: in.Texts, Maskable: in.TextOnly && len(in.Texts) > 0, textList: in.TextList && len(in.Texts) > 0,
		bytes: in.Weight, before: r.total + in.Offset, since: len(r.d.Turns) - 1,
	}
	if !r.turnOpen {
		res.since++ // a late result: only requests from the next turn on are sure to include it
	}
	if res.call = r.callOf(values, in); res.call >= 0 {
		c := r.calls[res.call]
		res.CallID, res.Turn, res.callMessage = c.id, c.turn, c.message
		if c.name != "" {
			res.Name = c.name
		}
	}
	if res.marked = in.Failed; res.marked {
		res.failed = verdictPair{isError, isError}
	}
	r.d.hasReadBack = r.d.hasReadBack || recovertool.IsName(res.Name)
	r.d.Results = append(r.d.Results, res)
	r.extendTurn()
}

// resolveCalls sets what depends on the whole conversation: the cache breakpoint and, for each result, the
// last turn that calls it.
func (r *reader) resolveCalls() {
	r.d.BreakpointTTL = 0
	if last := len(r.d.Messages) - 1; r.hasWholeMark && last >= 0 {
		r.d.Breakpoint, r.d.breakpointEnd, r.d.BreakpointTTL = last, r.d.Messages[last].End, r.wholeMarkTTL
	} else if r.d.Breakpoint >= 0 {
		r.d.BreakpointTTL = r.d.Messages[r.d.Breakpoint].mark.TTL
	}
	for i := range r.d.Results {
		res := &r.d.Results[i]
		last, label := -1, UnknownTool
		if res.call >= 0 {
			c := r.calls[res.call]
			if last = c.turn; c.name != "" {
				label = c.name
			}
		}
		res.last, res.label = last, label
	}
}
