package readback

import (
	"bytes"

	"github.com/ctxgate/ctxgate/internal/sse"
	"github.com/ctxgate/ctxgate/jsonscan"
	"github.com/ctxgate/ctxgate/llm"
)

// ReplyObserver reads what a client is shown of a round, or of a whole reply that is not streamed, so that
// the reply can be recognized when the client sends it again. A nil observer reads nothing.
type ReplyObserver struct {
	codec    llm.ReadbackCodec
	stream   bool
	splitter sse.Splitter
	document []byte
	said     llm.Statement
	text     bytes.Buffer // of said, so far
	failed   bool         // something was not understood, or too long
	complete bool         // the last event of the stream has come
}

// NewReplyObserver makes an observer.
func NewReplyObserver(codec llm.ReadbackCodec, stream bool) *ReplyObserver {
	return &ReplyObserver{codec: codec, stream: stream, splitter: sse.Splitter{MaxEvent: MaxKept}}
}

// Write reads what the client is shown, in whatever pieces.
func (o *ReplyObserver) Write(shown []byte) {
	switch {
	case o == nil || o.failed:
	case o.stream:
		o.failed = o.splitter.Write(shown, o.readEvent, func() {}) != nil || o.failed
	default:
		o.document = append(o.document, shown...)
		if o.failed = len(o.document) > MaxKept; o.failed {
			o.document = nil
		}
	}
}

func (o *ReplyObserver) readEvent(raw []byte) {
	e := sse.ParseRaw(raw, true)
	switch data := bytes.TrimSpace(e.Data); {
	case e.Data == nil:
	case string(data) == "[DONE]":
		o.complete = true
	default:
		if _, err := jsonscan.FieldsOf(data); err != nil {
			o.failed = true
			return
		}
		o.complete = o.codec.ReadReplyEvent(&o.said, data) || o.complete
		o.text.WriteString(o.said.Text)
		o.said.Text = ""
	}
}

// AddTo adds what was shown to what a reply says; of a document that is all of it. False means that not
// everything was understood.
func (o *ReplyObserver) AddTo(reply *llm.Statement) bool {
	if o == nil {
		return false
	}
	if o.stream {
		o.readEvent(o.splitter.Reset())
	}
	if o.failed {
		return false
	}
	if !o.stream {
		*reply = llm.Statement{}
		o.codec.ReadReply(&o.said, o.document)
	}
	reply.Text += o.text.String() + o.said.Text
	reply.Calls = append(reply.Calls, o.said.Calls...)
	return true
}

// IsComplete says that the last event of a stream was shown.
func (o *ReplyObserver) IsComplete() bool { return o != nil && o.complete }
