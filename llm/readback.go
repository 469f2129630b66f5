package llm

import (
	"slices"
	"strings"
	"time"

	"github.com/ctxgate/ctxgate/internal/rawjson"
	"github.com/ctxgate/ctxgate/jsonscan"
)

// ReadbackCodec is a [Codec] of a shape whose models can read back masked originals: the proxy offers them
// recover_text, answers the calls itself, and merges the provider's replies, called rounds, into one. A shape
// without it is still proxied, masked and accounted.
type ReadbackCodec interface {
	Codec

	// ReadStatement adds the text and calls of a request's message, if it is the model's.
	ReadStatement(st *Statement, body []byte, message jsonscan.Span) (byModel bool)
	// ReadSaid adds the text and calls of a round: see [Round.Said].
	ReadSaid(st *Statement, said []byte)
	// ReadReply adds the text and calls of a reply that is not streamed.
	ReadReply(st *Statement, document []byte)
	// ReadReplyEvent adds the text and calls of a stream event. last says that it ends the reply.
	ReadReplyEvent(st *Statement, data []byte) (last bool)

	// ToolEntry encodes a tool as an element of the request's tools.
	ToolEntry(name, description, schema string) string
	// MayOffer says whether recover_text may be offered: the request asks for one reply, and the provider
	// stores nothing of it that changes the next request. member returns the members of the request that
	// are not part of the conversation.
	MayOffer(member func(key string) []byte) bool

	// AppendSaid appends the model's output in a round as messages of a request.
	AppendSaid(dst, said []byte) []byte
	// AppendAnswers appends the results of its calls as messages of a request.
	AppendAnswers(dst []byte, answers []Answer) []byte
	// Restore puts the hidden parts of a reply back into its messages. False means that the messages
	// differ from what the client was shown.
	Restore(r *Restoration) ([]jsonscan.Edit, bool)

	// NewStreamMerger returns a merger of event streams, which passes, changes, drops or holds events
	// through b.
	NewStreamMerger(b *EventBuffer) StreamMerger
	// NewDocumentMerger returns a merger of replies that are not streamed.
	NewDocumentMerger() DocumentMerger
}

// StatefulCodec is a codec of a shape in which the provider may store the conversation and the client names the
// reply that its request continues. The provider also stores a hidden call that is not answered yet, and refuses
// the next request unless it answers the call.
type StatefulCodec interface {
	// ReplyID is the id by which a request may continue a reply; "" if it has none. end is the last output
	// of the [ReadbackCodec]'s merger.
	ReplyID(end []byte, stream bool) string
	// PreviousReplyID is the id of the reply that a request continues; "" if it names none.
	PreviousReplyID(member func(key string) []byte) string
}

// MaxCacheMarks is how many blocks of a request may have a cache_control.
const MaxCacheMarks = 4

// CacheMarkCodec is a codec of a shape whose provider caches only what is marked: at most MaxCacheMarks blocks
// of a request.
type CacheMarkCodec interface {
	// MayMark says whether one more block of a request may have a cache_control.
	MayMark(body []byte) bool
	// MarkLast puts a cache_control on the last answer of a request that ends with AppendAnswers' output,
	// because the client's next request includes this round. Another request is not changed.
	MarkLast(body []byte) []byte
	// MarkMessage puts a cache_control on the last block of a message that calls tools, to live as long as
	// ttl says; 0 is the provider's default. It returns false if that block has one, or may have none.
	MarkMessage(body []byte, message jsonscan.Span, ttl time.Duration) (jsonscan.Edit, bool)
}

// Statement is the text and the calls of a reply.
type Statement struct {
	Text  string
	Calls []string // call ids
}

// AddCall adds a tool call; one without an id is ignored.
func (s *Statement) AddCall(id string) {
	if id != "" {
		s.Calls = append(s.Calls, id)
	}
}

// AddContent adds the content of a message: a string, or a list of blocks.
func (s *Statement) AddContent(body []byte, message jsonscan.Fields) {
	content, ok := message.Field("content")
	if !ok {
		return
	}
	if body[content.Value.Start] != '[' {
		s.Text += jsonscan.DecodeString(content.Value.Of(body))
		return
	}
	s.AddBlocks(body, content.Value)
}

// AddBlocks adds a list of content blocks.
func (s *Statement) AddBlocks(body []byte, list jsonscan.Span) {
	_ = jsonscan.EachElement(body, list, func(at jsonscan.Span) error {
		block, err := jsonscan.ReadFields(body, at)
		switch block.Text("type") {
		case "text", "output_text":
			s.Text += block.Text("text")
		case "tool_use":
			s.AddCall(block.Text("id"))
		}
		return err
	})
}

// RecoverCall is a call of recover_text.
type RecoverCall struct {
	ID string
	// Args are the arguments: the JSON object that the model wrote, {} if it wrote nothing. In shapes that
	// encode them as a text the object is not validated.
	Args []byte
}

// ArgsOf returns the arguments that a model wrote as a text.
func ArgsOf(text string) []byte {
	if strings.TrimSpace(text) == "" {
		return []byte("{}")
	}
	return []byte(text)
}

// Answer is the result of a recover_text call.
type Answer struct {
	ID     string // of the call
	Text   string
	Failed bool
}

// Round is the model's output in a round with a call of recover_text.
type Round struct {
	// Said is the whole output with all calls, in the form in which a request repeats it. Chat completions:
	// one message. Messages: the array of content blocks, without blank text blocks, which providers
	// refuse. Responses: the array of output items, without reasoning that is neither stored nor encrypted,
	// which the provider would not find.
	Said []byte
	// Calls are the calls of recover_text, in order; there is at least one.
	Calls []RecoverCall
	// Mixed says that the model also called tools of the client. The reply ends here, and the client
	// answers those calls.
	Mixed bool
	// Others are the ids of the calls of the client's tools, in order.
	Others []string
	// Shown is how much of Said the client was shown: bytes of text in chat completions, blocks in messages,
	// items in responses. The hidden rest are the Calls.
	Shown int
	// Text is the text that the client was shown; only for chat completions, where nothing else separates
	// the rounds of a message.
	Text string
}

// IfAnswerable returns the round, or nil if its calls cannot be answered.
func (r *Round) IfAnswerable() *Round {
	r.Mixed = len(r.Others) > 0
	if len(r.Calls) == 0 || slices.ContainsFunc(r.Calls, func(c RecoverCall) bool { return c.ID == "" }) {
		return nil
	}
	return r
}

// Step is a round with hidden calls, and their answers.
type Step struct {
	Said    []byte // as [Round.Said]
	Answers []Answer
	Mixed   bool     // the client answers calls of this round too; it is the last round
	Others  []string // the ids of the client's calls
}

// Restoration is a reply in a request, and its parts that were hidden from the client.
type Restoration struct {
	Codec    ReadbackCodec
	Body     []byte
	Messages []jsonscan.Span // of the reply
	Next     jsonscan.Span   // the message after it; empty if there is none
	Reply    Statement       // the reply as the client repeats it

	Whole []Step // the hidden rounds before the last one
	Mixed *Step  // the round that the client answers too; nil: none
}

// HiddenMessages encodes the hidden rounds as messages of the conversation.
func (r *Restoration) HiddenMessages() []byte {
	var out []byte
	for i, s := range r.Whole {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(r.Codec.AppendSaid(out, s.Said), ',')
		out = r.Codec.AppendAnswers(out, s.Answers)
	}
	return out
}

// InsertHidden inserts the hidden rounds at an offset.
func (r *Restoration) InsertHidden(at int) []jsonscan.Edit {
	return InsertElements(at, r.HiddenMessages())
}

// InsertElements returns the edit that inserts elements before the element at an offset.
func InsertElements(at int, elements []byte) []jsonscan.Edit {
	if len(elements) == 0 {
		return nil
	}
	return []jsonscan.Edit{{Span: jsonscan.Span{Start: at, End: at}, Text: append(elements, ',')}}
}

// Replace replaces a span by the hidden rounds and the mixed one.
func (r *Restoration) Replace(what jsonscan.Span) ([]jsonscan.Edit, bool) {
	text := r.HiddenMessages()
	if r.Mixed != nil {
		if len(text) > 0 {
			text = append(text, ',')
		}
		text = append(r.Codec.AppendSaid(text, r.Mixed.Said), ',')
		text = r.Codec.AppendAnswers(text, r.Mixed.Answers)
	}
	return []jsonscan.Edit{{Span: what, Text: text}}, true
}

// CountShown counts the client's blocks, or items, that belong to the rounds before the last. False means that
// some are missing.
func (r *Restoration) CountShown(theirs []jsonscan.Span) (n int, ok bool) {
	for i := range r.Whole {
		for _, want := range r.Whole[i].Pieces() {
			for want.Kind != thinking && n < len(theirs) && pieceAt(r.Body, theirs[n]).isBlank() {
				n++
			}
			has := n < len(theirs) && pieceAt(r.Body, theirs[n]).equals(want)
			if !has && want.Kind != thinking { // clients drop thinking at any time
				return 0, false
			}
			if has {
				n++
			}
		}
	}
	return n, true
}

// Piece is the kind and text of a block or an item.
type Piece struct{ Kind, Text string } // Text is the id of a call

const (
	thinking  = "thinking"
	textPiece = "text"
)

// isBlank says whether a piece is text of only white space, which requests must not have but some replies do.
func (p Piece) isBlank() bool { return p.Kind == textPiece && strings.TrimSpace(p.Text) == "" }

func (p Piece) equals(as Piece) bool {
	return p.Kind == as.Kind && (p.Kind == thinking || p.Text == as.Text)
}

// pieceAt reads a block of a message, or an item.
func pieceAt(body []byte, at jsonscan.Span) Piece {
	fields, err := jsonscan.ReadFields(body, at)
	if err != nil {
		return Piece{}
	}
	switch kind := fields.Text("type"); kind {
	case "thinking", "redacted_thinking", "reasoning":
		return Piece{Kind: thinking}
	case "text", "output_text":
		return Piece{textPiece, fields.Text("text")}
	case "", "message":
		return Piece{textPiece, messageText(body, fields)}
	case "tool_use":
		return Piece{kind, fields.Text("id")}
	case "function_call":
		return Piece{kind, fields.Text("call_id")}
	default:
		return Piece{Kind: kind}
	}
}

// messageText is the text of an item that is a message.
func messageText(body []byte, message jsonscan.Fields) string {
	var text strings.Builder
	text.WriteString(message.Text("content"))
	content, _ := message.Field("content")
	for _, s := range rawjson.ElementSpans(body, content.Value) {
		if fields, err := jsonscan.ReadFields(body, s); err == nil {
			text.WriteString(fields.Text("text"))
		}
	}
	return text.String()
}

// Pieces returns the blocks or items of a round that the client was shown.
func (s *Step) Pieces() []Piece {
	var out []Piece
	for _, at := range rawjson.ElementSpans(s.Said, rawjson.All(s.Said)) {
		p := pieceAt(s.Said, at)
		hidden := slices.ContainsFunc(s.Answers, func(a Answer) bool { return a.ID == p.Text })
		if !hidden || p.Kind != "tool_use" && p.Kind != "function_call" {
			out = append(out, p)
		}
	}
	return out
}

// Text is the text of a round that the client was shown.
func (s *Step) Text() string {
	var text strings.Builder
	for _, p := range s.Pieces() {
		if p.Kind == textPiece {
			text.WriteString(p.Text)
		}
	}
	return text.String()
}
