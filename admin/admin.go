// Package admin is the operator's listener: metrics, and the accounts of what masking saved. It has
// an address of its own, loopback unless told otherwise, and always asks for a token. Nothing here
// can name a program to run.
//
// Path through the files: admin.go is the configuration and the routes, savings.go writes the
// accounts as JSON and as sheets.
package admin

import (
	"fmt"
	"net/http"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/front"
	"github.com/ctxgate/ctxgate/internal/secret"
)

// Config is the operator's listener.
type Config struct {
	// The address of the operator's listener. Default "127.0.0.1:8090"; empty means none.
	Listen string `key:"listen" reload:"restart"`

	// The token the operator must send, as "Authorization: Bearer …". Default: one is made at
	// the first start and kept in the file admin-token of the data directory.
	Token secret.Text `key:"token"`
}

// Default is the configuration of an empty file.
func Default() Config { return Config{Listen: "127.0.0.1:8090"} }

// Validate lists every problem; each text begins with the key it is about.
func (c Config) Validate() []error {
	if c.Listen == "" {
		return nil
	}
	if err := front.CheckAddress(c.Listen); err != nil {
		return []error{fmt.Errorf("listen: %w", err)}
	}
	return nil
}

// Routes mounts the operator's endpoints.
func Routes(mux *http.ServeMux, metrics http.Handler, refuse front.Refuse) {
	mux.Handle("GET /metrics", metrics)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		refuse(w, r, fault.New(fault.NotFound, "there is nothing at this path"))
	})
}
