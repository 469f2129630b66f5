// Package rounds lets a model read back what was masked, behind the back of a client that knows
// nothing of it: it offers the model one more tool, makes one reply of the several that the
// provider gives when the model calls that tool, and puts the calls that the client never saw back
// into the conversation when the client goes on with it.
//
// Path through the files: rounds.go holds what the two halves say to each other. The replies:
// join.go is the straight line of a reply, round by round; joinevents.go takes one that is a stream,
// event by event, and joinwhole.go one that is not; joinjson.go reads and changes an event's data;
// chat.go, messages.go and responses.go know what is peculiar to a shape, streamed or not; usage.go
// adds up what the rounds cost. The requests: offer.go puts the tool into a request; follow.go makes
// the request of the next round; record.go is what is remembered of hidden calls, ear.go hears to
// which reply they belong, and restore.go and due.go put them back. The tests with the official
// clients are in the folder clients.
//
// Invariants: a reply in which the model does not call the tool comes out byte for byte as it came
// in, each event with the piece that ended it. In one in which it does, only what belongs to those
// calls is taken away, and only numbers and ids that would contradict each other are changed: the
// client has one message, with the calls of its own tools, and the sum of what all rounds used.
// What the model said goes back to the provider as the model said it: signed thinking stays valid.
//
// What cannot be understood passes as it came, and its round is the last: no second request is made
// on a guess. No more than a few megabytes are kept of a reply; see [Join.Write] for one that says
// more.
package rounds

import (
	"errors"

	"github.com/ctxgate/ctxgate/history"
)

// Tool is the name of the tool that reads back.
const Tool = "recover_text"

// ErrTooLong is a reply of a later round that cannot be joined: one of its events, or all of it when
// it is not streamed, is longer than what may be kept. The client has a part of the reply; the rest
// must not look as if it were whole.
var ErrTooLong = errors.New("the reply is too long to be joined to the rounds before it")

// Call is a call of the tool that reads back.
type Call struct {
	ID string
	// Args are the call's arguments: the JSON object that the model wrote, {} when it wrote nothing.
	// For chat and responses nobody has checked that it is one.
	Args []byte
}

// Round is what the model said in a round in which it called that tool.
type Round struct {
	// Said is all that the model said, with all its calls, as a request repeats it. Chat: one
	// message object. Messages: the array of content blocks (without blocks of blank text, which no
	// request may hold). Responses: the array of output items (without reasoning that the provider
	// would look for in vain: neither stored nor encrypted).
	Said []byte
	// Calls are those of the tool that reads back, in order; there is at least one.
	Calls []Call
	// Mixed says that the model called tools of the client too. The reply ends here, and the client
	// answers those: the caller does not ask again but calls [Join.Finish].
	Mixed bool
	// Others are the ids of the calls of the client's tools, in order.
	Others []string
	// Shown is how much of Said the client was shown: chat: bytes of text; messages: blocks;
	// responses: items. What it was not shown are the Calls.
	Shown int
	// Text is the text that the client was shown; only for chat, where nothing else tells the rounds
	// of a message apart.
	Text string
}

// NewJoin makes one reply of several rounds. stream says whether the replies are event streams, all
// of them, which their Content-Type tells better than the request.
//
// For each round the caller writes the provider's reply (of status 200, not packed) with
// [Join.Write] and then calls [Join.End]. If that gives a Round that is not Mixed, the caller may
// ask the provider again and write the next reply. Otherwise, or when it does not want to, or when
// the provider fails before the next reply's first byte, it calls [Join.Finish], once. What Write
// and Finish give goes to the client; it is valid until the next call.
func NewJoin(shape history.Shape, stream bool) *Join {
	return &Join{reply: newReply(shape, stream, MaxKept)}
}
