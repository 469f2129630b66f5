package admin

import (
	"encoding/json"
	"net/http"
	"time"
)

// Status is the JSON of /api/v1/status: the gateway as a person wants to see it. No field has a secret.
type Status struct {
	Version    string     `json:"version"`
	PID        int        `json:"pid"`
	Started    time.Time  `json:"started"`
	Config     string     `json:"config"` // the path of the file; "" without one
	Profile    string     `json:"profile"`
	Background bool       `json:"background"`    // a client started it, and it ends by itself
	Log        string     `json:"log,omitempty"` // the file of its log; "" where that goes to stderr
	Draining   bool       `json:"draining"`      // it is stopping
	Listeners  []Listener `json:"listeners"`
	Servers    []Server   `json:"servers"`
	Clients    []Client   `json:"clients"`
	Budgets    []Budget   `json:"budgets,omitempty"` // of tenants that have used some, the most used first
	Today      Today      `json:"today"`
	Store      Store      `json:"store"`
}

// Listener is an open address.
type Listener struct {
	Name    string `json:"name"` // main, admin or pruner
	Address string `json:"address"`
}

// Budget is what a tenant has used of a budget.
type Budget struct {
	Tenant   string       `json:"tenant"`
	Per      string       `json:"per"` // day or month
	Used     BudgetAmount `json:"used"`
	Reserved BudgetAmount `json:"reserved"` // by requests in flight
	Limit    BudgetAmount `json:"limit"`    // 0: any number
	Share    float64      `json:"share"`    // how much is used, by the count of which most is used
	Text     string       `json:"text"`     // the counts for people
	Renews   time.Time    `json:"renews"`
}

// BudgetAmount is a part of a budget.
type BudgetAmount struct {
	Requests int64       `json:"requests"`
	Tokens   int64       `json:"tokens"`
	Money    json.Number `json:"money"`
}

// Server is the state of an MCP server.
type Server struct {
	ID        string    `json:"id"`
	Transport string    `json:"transport"` // stdio, http, sse or rpc; builtin for one that is part of the gateway
	State     string    `json:"state"`     // up, starting, down, unauthorized or stopped
	Since     time.Time `json:"since,omitzero"`
	Revision  string    `json:"revision,omitempty"` // of the protocol, as of the last handshake

	// What it lists, or listed last.
	Tools     int `json:"tools"`
	Held      int `json:"held_tools,omitempty"` // tools that are not served, see /api/v1/pins
	Prompts   int `json:"prompts"`
	Resources int `json:"resources"`

	Restarts    int       `json:"restarts"`
	LastError   string    `json:"last_error,omitempty"`
	LastErrorAt time.Time `json:"last_error_at,omitzero"`
	LastStderr  string    `json:"last_stderr,omitempty"` // the line of its stderr that says most about the error
	NextAttempt time.Time `json:"next_attempt,omitzero"` // of a server that is down
	OwnConns    int       `json:"own_connections"`       // connections or processes that serve a single client each
}

// Client is a client of the MCP endpoint.
type Client struct {
	ID          string    `json:"id,omitempty"`   // as its entry names it
	Name        string    `json:"name,omitempty"` // as it says itself
	Version     string    `json:"version,omitempty"`
	Transport   string    `json:"transport"` // stdio or http
	Since       time.Time `json:"since"`
	LastRequest time.Time `json:"last_request"`
	Requests    int64     `json:"requests"`
}

// Today is what was cut and read back since Since, in local time. Tokens are estimates.
type Today struct {
	Since          time.Time `json:"since"`
	TextsCut       int64     `json:"texts_cut"`
	CharsCut       int64     `json:"chars_cut"`
	TokensCut      int64     `json:"tokens_cut"`
	ModelRequests  int64     `json:"model_requests"`
	MaskedRequests int64     `json:"masked_requests"` // requests to models without some old or long tool results
	MaskedTokens   int64     `json:"masked_tokens"`   // tokens that these requests would have had more
	ReadBacks      int64     `json:"read_backs"`
	CharsReadBack  int64     `json:"chars_read_back"`
	TokensReadBack int64     `json:"tokens_read_back"`
	SentWhole      int64     `json:"sent_whole"`    // texts not cut because their originals could not be stored
	Unrecoverable  int64     `json:"unrecoverable"` // texts cut for good

	// What models' replies cost and would have cost, as in /savings: unmasked - parts + recovery = billed, in tokens
	// of fresh input.
	Replies    int64             `json:"replies"`
	Billed     int64             `json:"billed"`
	Unmasked   int64             `json:"unmasked"`
	Saved      int64             `json:"saved"`
	Recovery   int64             `json:"recovery"`
	Parts      SavedParts[int64] `json:"parts"`
	Money      TodayMoney        `json:"money"`
	NotMasking string            `json:"not_masking,omitempty"` // why the last request to a model was not masked
}

// TodayMoney is what replies cost in money, output included, without replies that have no price.
type TodayMoney struct {
	Billed   json.Number `json:"billed"`
	Unmasked json.Number `json:"unmasked"`
	Saved    json.Number `json:"saved"`
	Recovery json.Number `json:"recovery"`
	Unpriced int64       `json:"unpriced_requests"`
}

// Store is what the store holds.
type Store struct {
	Driver   string `json:"driver"`
	Path     string `json:"path,omitempty"`
	Bytes    int64  `json:"bytes"`
	MaxBytes int64  `json:"max_bytes"`
	Items    int64  `json:"items"`
	TTL      int64  `json:"ttl_seconds"`
	Error    string `json:"error,omitempty"` // why the store does not answer
}

// serveStatus answers GET /api/v1/status.
func serveStatus(status func(*http.Request) Status) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		out := json.NewEncoder(w)
		out.SetEscapeHTML(false)
		out.SetIndent("", "  ")
		_ = out.Encode(status(r)) // fails only if the client is gone
	}
}
