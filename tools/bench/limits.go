package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/ctxgate/ctxgate/jsonscan"
	"github.com/ctxgate/ctxgate/prune"
	"github.com/ctxgate/ctxgate/reduce"
)

// maxChars are the limits that are compared.
var maxChars = []int{4000, 10_000, 20_000}

// benchLimits prints how much of the needed lines stays when a text is shortened to max_chars characters, by
// reduce = "prune" and by a head and a tail of the same length.
func benchLimits(ctx context.Context) error {
	fmt.Printf("| set, type, max_chars | n | head and tail: recall | all gold | prune: recall | all gold | of max_chars used | with prune_type: recall |\n|---|---|---|---|---|---|---|---|\n")
	for _, set := range []string{tuningSamples, moreCodeSamples} {
		samples, err := readCorpus(".", set)
		if errors.Is(err, errNoCorpus) {
			fmt.Println(err)
			return nil
		}
		if err != nil {
			return err
		}
		for _, name := range []string{"code", "logs", "docs"} {
			for _, limit := range maxChars {
				m, err := measureLimit(ctx, name, limit, samples)
				if err != nil {
					return err
				}
				if m.masked.n > 0 {
					fmt.Printf("| %s, %s, %d | %d | %.3f | %.3f | %.3f | %.3f | %.2f | %.3f |\n", set, name, limit, m.masked.n,
						m.masked.mean(m.masked.recall), m.masked.mean(m.masked.allGold), m.pruned.mean(m.pruned.recall), m.pruned.mean(m.pruned.allGold),
						m.pruned.mean(m.pruned.saved), m.typed.mean(m.typed.recall))
				}
			}
		}
	}
	return nil
}

// limited is what stays within a limit: of a head and a tail, of pruned texts, and of those whose kind is given.
type limited struct{ masked, pruned, typed tally }

// measureLimit shortens the samples of a type that are longer than the limit. An error means that one is longer afterwards.
func measureLimit(ctx context.Context, name string, limit int, samples []sample) (m limited, err error) {
	half := reduce.Mask{MaxChars: limit, HeadChars: limit / 2, TailChars: limit / 2, Markers: reduce.DocumentMarkers}
	masking := reduce.Policy{Mask: half.ScaledTo(limit, 160), IDLen: prune.IDLen}
	for i := range samples {
		s := &samples[i]
		body, lines := s.quoted()
		if s.Type != name || jsonscan.CountChars(body) <= limit {
			continue
		}
		pruning := reduce.Policy{Mask: half, IDLen: prune.IDLen, Choice: reduce.Choice{Reducer: "prune", Goal: s.Goal, Prune: reduce.DefaultPruneOptions()}}
		typing := pruning
		typing.Prune.Type = name
		for _, way := range []struct {
			reduce.Policy
			*tally
		}{{masking, &m.masked}, {pruning, &m.pruned}, {typing, &m.typed}} {
			kept, chars := shortenLines(ctx, body, lines, way.Policy)
			if chars > limit {
				return m, fmt.Errorf("%s: %d characters, the limit is %d", s.ID, chars, limit)
			}
			way.add(s.recall(kept), 0, float64(chars)/float64(limit))
		}
	}
	return m, nil
}

// quoted is the text as the inside of a JSON string, and where its lines are in there.
func (s *sample) quoted() (body []byte, lines []jsonscan.Span) {
	for i, line := range strings.Split(s.Text, "\n") {
		if i > 0 {
			body = append(body, `\n`...)
		}
		start := len(body)
		body = jsonscan.AppendEscaped(body, line)
		lines = append(lines, jsonscan.Span{Start: start, End: len(body)})
	}
	return body, lines
}

// shortenLines shortens a text with the first reducer that can, and returns which of its lines stay whole and how many
// characters are left.
func shortenLines(ctx context.Context, body []byte, lines []jsonscan.Span, p reduce.Policy) (kept []bool, chars int) {
	str := jsonscan.Str{Span: jsonscan.Span{End: len(body)}, Chars: jsonscan.CountChars(body)}
	var edits []jsonscan.Edit
	for _, r := range p.Chain() {
		if c, ok := r.Cutter(ctx, p)(body, str); ok {
			edits = c.Edits(strings.Repeat("x", prune.IDLen))
			break
		}
	}
	kept = make([]bool, len(lines))
	for i, at := 0, 0; i < len(lines); i++ {
		for at < len(edits) && edits[at].End <= lines[i].Start {
			at++
		}
		kept[i] = at == len(edits) || edits[at].Start >= lines[i].End
	}
	return kept, jsonscan.CountChars(jsonscan.AppendSpliced(nil, body, edits))
}
