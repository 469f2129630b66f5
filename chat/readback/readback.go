// Package readback lets a model read back what was masked although its client does not know the tool for
// it: it offers the model recover_text, merges the several replies that the provider gives when the model
// calls that tool into one, and puts the calls that the client never saw back into the conversation when
// the client continues it. What is peculiar to a wire shape is in the shape's [llm.ReadbackCodec].
//
// Path through the files: request.go offers the tool, and makes the request of the next round; merger.go
// makes one reply of all rounds, streamed or not; observer.go reads what the client is shown, to recognize
// the reply when the client sends it again; record.go is what is stored of hidden calls, and how they are
// put back. The tests with the official clients are in the folder sdktest.
//
// Invariants: a reply in which the model does not call the tool comes out byte for byte as it came in,
// each event with the piece that ended it. In one in which it does, only what belongs to those calls is
// removed, and only numbers and ids that would contradict each other are changed: the client has one
// message, with the calls of its own tools, and the sum of what all rounds used. What the model said goes
// back to the provider as the model said it: signed thinking stays valid.
//
// What cannot be understood passes as it came, and its round is the last: no second request is made on a
// guess. No more than a few megabytes of a reply are kept; see [Merger.Write] for a longer one.
package readback

import "errors"

// MaxKept is how much is kept of one round of a reply.
const MaxKept = 8 << 20

// ErrTooLong is a reply of a later round that cannot be merged: one of its events, or all of it when it is
// not streamed, is longer than what may be kept. The client has a part of the reply; the rest must not
// look as if it were complete.
var ErrTooLong = errors.New("the reply is too long to be merged with the rounds before it")
