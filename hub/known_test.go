package hub_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ctxgate/ctxgate/mcp"
)

// A5: clients that call before the server has been greeted are never taken for each other either.
func TestQuestionsBeforeGreetingA5(t *testing.T) {
	t.Parallel()
	for _, era := range both {
		a := asking(t, true)
		free := make(chan struct{})
		hello := a.acts[mcp.Initialize]
		a.on(mcp.Initialize, func(c *turn) string {
			<-free
			return hello(c)
		})
		y := start(t, func(s *setup) { s.hub.ListWait = seconds(0.05) }, a)
		var wg sync.WaitGroup
		for i := range 4 {
			c := y.visit(t, "/mcp", era, able)
			mine := fmt.Sprintf("client %d", i)
			wg.Go(func() {
				g := c.converse(t, asks(mcp.Elicit+` {"message":"`+mine+`"}`), func(question string) string {
					if !strings.Contains(question, mine) {
						t.Errorf("%s was asked %s", mine, question)
					}
					return `{"action":"accept","content":{"who":"` + mine + `"}}`
				})
				if strings.Contains(g, "client") && !strings.Contains(g, mine) {
					t.Errorf("%s got %s", mine, g)
				}
			})
		}
		time.Sleep(200 * time.Millisecond)
		close(free)
		wg.Wait()
	}
}
