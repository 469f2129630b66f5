package chat

import (
	"context"
	"net/http"
	"strconv"

	"github.com/ctxgate/ctxgate/budget"
	"github.com/ctxgate/ctxgate/jsonscan"
	"github.com/ctxgate/ctxgate/llm"
	"github.com/ctxgate/ctxgate/meter"
)

// What a request may cost at most is estimated before it is made. The estimates are rather too high: what is not used
// is given back at the end.
const (
	bytesPerToken       = 3       // of a request; tokens are mostly longer
	defaultOutput       = 4096    // tokens, where a request does not limit them
	maxEstimate         = 1 << 20 // tokens of input, where the model's context is not known; pictures are no text
	replyBytesPerToken  = 4       // of a reply in one document
	streamBytesPerToken = 32      // of a stream, where each event repeats its frame
)

// spending is what a request may use, and has used, of its tenant's budgets.
type spending struct {
	reservation   *budget.Reservation
	input, output int64 // estimated tokens
	rates         meter.Rates

	used       budget.Amount
	replyBytes int64 // of the reply that is being read
	isStream   bool
}

// reserveBudget reserves what a request may cost, if its tenant has a budget. settleBudget must be called at its end.
func (px *Proxy) reserveBudget(ctx context.Context, w http.ResponseWriter, c *call, input int64) error {
	if !px.deps.Budgets.IsLimited(c.caller.Tenant()) {
		return nil
	}
	price := px.pricesFor(ctx, c.routed, c.model)
	s := &spending{rates: price.rates, input: input}
	if c.Conversation {
		s.input = int64(jsonscan.SplicedLen(c.body, c.edits)) / bytesPerToken
		s.output = maxOutput(c.body)
		most := int64(price.price.Context)
		if most == 0 {
			most = maxEstimate
		}
		s.input, s.output = min(s.input, most), min(s.output, most)
	}
	most := budget.Amount{Requests: 1, Tokens: s.input + s.output, Money: int64(s.rates.MostCost(s.input, s.output))}
	var err error
	if s.reservation, err = px.deps.Budgets.Reserve(ctx, c.caller.Tenant(), most); err != nil {
		return err
	}
	if text := s.reservation.Warning(); text != "" {
		w.Header().Set("X-Ctxgate-Budget", text)
	}
	c.spending = s
	return nil
}

// settleBudget records what the request used, in place of what it reserved. A request that no provider was asked for
// costs nothing.
func (c *call) settleBudget() {
	if c.spending == nil {
		return
	}
	if c.attempts > 0 {
		c.spending.used.Requests = 1
	}
	c.spending.reservation.Settle(c.spending.used)
}

// startReply says that a reply is going to be read.
func (s *spending) startReply(rep *reply) {
	if s != nil {
		s.replyBytes, s.isStream = 0, isEventStream(rep.Header)
	}
}

// countReply counts a piece of the reply.
func (s *spending) countReply(piece []byte) {
	if s != nil {
		s.replyBytes += int64(len(piece))
	}
}

// addUsage adds what a reply says it cost.
func (s *spending) addUsage(u llm.Usage, spent meter.Money) {
	if s != nil {
		s.used.Tokens += u.Fresh + u.Cached + u.Created + u.Output
		s.used.Money += int64(spent)
	}
}

// addUnknown adds what a reply cost that did not say it, or broke off before its end: input as it was estimated, unless
// the reply has said it, and output by the size of the reply.
func (s *spending) addUnknown(rep *reply, said llm.Usage) {
	if s == nil || rep.StatusCode/100 != 2 {
		return
	}
	size := int64(replyBytesPerToken)
	if s.isStream {
		size = streamBytesPerToken
	}
	input, output := s.input, max(min(s.replyBytes/size, s.output)-said.Output, 0)
	if said != (llm.Usage{}) {
		input = 0
	}
	s.used.Tokens += input + output
	s.used.Money += int64(s.rates.MostCost(input, output))
}

// maxOutput is how many tokens a request lets the model write.
func maxOutput(body []byte) int64 {
	most := int64(0)
	s := jsonscan.New(body, 0)
	read := func() error {
		raw, err := s.Skip()
		if n, failed := strconv.ParseInt(string(raw.Of(body)), 10, 64); failed == nil {
			most = max(most, n)
		}
		return err
	}
	err := s.Object(nil, func(key []byte) error {
		switch string(key) {
		case "max_tokens", "max_completion_tokens", "max_output_tokens":
			return read()
		case "generationConfig":
			if s.Kind() != '{' {
				return nil
			}
			return s.Object(nil, func(key []byte) error {
				if string(key) == "maxOutputTokens" {
					return read()
				}
				return nil
			})
		}
		return nil
	})
	if err != nil || most <= 0 {
		return defaultOutput
	}
	return most
}

// unreadInput estimates the tokens of a request that is forwarded unread: of JSON, such as texts to embed. Files have
// none.
func unreadInput(r *http.Request) int64 {
	if !isJSON(r.Header) {
		return 0
	}
	return min(max(r.ContentLength, 0)/bytesPerToken, maxEstimate)
}
