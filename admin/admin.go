// Package admin serves the operator's listener: metrics, the state of the gateway as JSON, and the savings of masking as JSON and CSV. It
// has its own address, loopback by default, and always requires a token. Nothing here can start a process.
package admin

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/front"
	"github.com/ctxgate/ctxgate/internal/secret"
	"github.com/ctxgate/ctxgate/meter"
)

// Config is the admin listener.
type Config struct {
	// The address of the admin listener, which serves /metrics, /savings and
	// /api/v1/status. Default "127.0.0.1:8090"; empty means none.
	Listen string `key:"listen" reload:"restart"`

	// The token that the operator must send, as "Authorization: Bearer …". Default: a token is generated
	// at the first start and stored in the file admin-token of the data directory.
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

// Routes mounts the operator's endpoints. GET /api/v1/status is what the gateway does now. GET /savings gives JSON, with ?format=csv a table by model, and
// with ?format=csv&by=tool a table by tool.
func Routes(mux *http.ServeMux, metrics http.Handler, savings func() meter.Savings, status func(*http.Request) Status, onError front.ErrorHandler) {
	mux.Handle("GET /metrics", metrics)
	mux.HandleFunc("GET /api/v1/status", serveStatus(status))
	mux.HandleFunc("GET /savings", func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		format, by := q.Get("format"), q.Get("by")
		switch {
		case format == "" || format == "json":
			w.Header().Set("Content-Type", "application/json")
			out := json.NewEncoder(w)
			out.SetIndent("", "  ")
			_ = out.Encode(newReport(savings(), time.Now())) // fails only if the client is gone
		case format == "csv" && (by == "" || by == "model" || by == "tool"):
			w.Header().Set("Content-Type", "text/csv; charset=utf-8")
			out := csv.NewWriter(w)
			_ = out.WriteAll(csvRows(savings(), by == "tool"))
		default:
			onError(w, r, fault.New(fault.BadParams, "format is json or csv, and by is model or tool"))
		}
	})
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		onError(w, r, fault.New(fault.NotFound, "there is nothing at this path"))
	})
}

// unitNote explains the numbers in the report itself.
const unitNote = "billed, unmasked, recovery, saved and missed are tokens of fresh input that cost the same, by the provider's usage " +
	"and its configured cache prices; saved = unmasked - billed, and recovery is a part of billed; money is in the currency of the configured " +
	"prices, output included"

// savingsReport is the JSON of /savings.
type savingsReport struct {
	Since  time.Time     `json:"since"`
	Until  time.Time     `json:"until"`
	Units  string        `json:"units"`
	Total  account       `json:"total"`
	Models []account     `json:"models"`
	Tools  []toolSavings `json:"tools"`
}

type account struct {
	Tenant   string `json:"tenant,omitempty"`
	Provider string `json:"provider,omitempty"`
	Model    string `json:"model,omitempty"`

	Requests int64           `json:"requests"`
	Recovers int64           `json:"recovery_requests"`
	Fresh    int64           `json:"fresh"`
	Cached   int64           `json:"cached"`
	Created  int64           `json:"created"`
	Long     int64           `json:"created_1h"`
	Output   int64           `json:"output"`
	Billed   int64           `json:"billed"`
	Unmasked int64           `json:"unmasked"`
	Recovery int64           `json:"recovery"`
	Saved    int64           `json:"saved"`
	Misses   map[string]miss `json:"cache_misses"`
	Money    money           `json:"money"`
}

type miss struct {
	Requests int64 `json:"requests"`
	Missed   int64 `json:"missed"`
}

type money struct {
	Billed   json.Number `json:"billed"`
	Saved    json.Number `json:"saved"`
	Recovery json.Number `json:"recovery"`
	Unpriced int64       `json:"unpriced_requests"`
}

type toolSavings struct {
	Tenant   string      `json:"tenant"`
	Provider string      `json:"provider"`
	Model    string      `json:"model"`
	Tool     string      `json:"tool"`
	Results  int64       `json:"results"`
	Cleared  int64       `json:"cleared"`
	Saved    int64       `json:"saved"`
	Money    json.Number `json:"money_saved"`
}

func newReport(s meter.Savings, now time.Time) savingsReport {
	out := savingsReport{
		Since: s.Since.UTC().Truncate(time.Second), Until: now.UTC().Truncate(time.Second), Units: unitNote,
		Total: newAccount(s.Total), Models: []account{}, Tools: []toolSavings{},
	}
	for _, a := range s.Models {
		out.Models = append(out.Models, newAccount(a))
	}
	for _, t := range s.Tools {
		out.Tools = append(out.Tools, toolSavings{t.Tenant, t.Provider, t.Model, t.Tool, t.Results, t.Tokens, t.Saved, json.Number(t.MoneySaved.String())})
	}
	return out
}

func newAccount(a meter.Account) account {
	out := account{
		Tenant: a.Tenant, Provider: a.Provider, Model: a.Model, Requests: a.Requests, Recovers: a.Recoveries,
		Fresh: a.Usage.Fresh, Cached: a.Usage.Cached, Created: a.Usage.Created, Long: a.Usage.Long, Output: a.Usage.Output,
		Billed: a.Cost.Billed, Unmasked: a.Cost.Unmasked, Recovery: a.Cost.Recovery, Saved: a.Cost.Saved(),
		Misses: map[string]miss{},
		Money: money{
			Billed: json.Number(a.Spent.String()), Saved: json.Number(a.MoneySaved.String()),
			Recovery: json.Number(a.MoneyRecovery.String()), Unpriced: a.Unpriced,
		},
	}
	for _, cause := range meter.MissCauses() {
		out.Misses[cause.String()] = miss{a.CacheMisses[cause].Requests, a.CacheMisses[cause].Tokens}
	}
	return out
}

// csvRows is the CSV of /savings: a header and a row per account. It has no row of totals, so that adding
// up a column counts nothing twice.
func csvRows(s meter.Savings, byTool bool) [][]string {
	if byTool {
		out := [][]string{{"tenant", "provider", "model", "tool", "results", "cleared", "saved", "money_saved"}}
		for _, t := range s.Tools {
			out = append(out, csvRow([]string{t.Tenant, t.Provider, t.Model, t.Tool}, []int64{t.Results, t.Tokens, t.Saved}, t.MoneySaved))
		}
		return out
	}
	head := []string{
		"tenant", "provider", "model", "requests", "recovery_requests", "fresh", "cached", "created", "created_1h", "output",
		"billed", "unmasked", "recovery", "saved", "unpriced_requests",
	}
	for _, cause := range meter.MissCauses() {
		head = append(head, "misses_"+cause.String(), "missed_"+cause.String())
	}
	out := [][]string{append(head, "money_billed", "money_saved", "money_recovery")}
	for _, a := range s.Models {
		numbers := []int64{
			a.Requests, a.Recoveries, a.Usage.Fresh, a.Usage.Cached, a.Usage.Created, a.Usage.Long, a.Usage.Output,
			a.Cost.Billed, a.Cost.Unmasked, a.Cost.Recovery, a.Cost.Saved(), a.Unpriced,
		}
		for _, cause := range meter.MissCauses() {
			numbers = append(numbers, a.CacheMisses[cause].Requests, a.CacheMisses[cause].Tokens)
		}
		out = append(out, csvRow([]string{a.Tenant, a.Provider, a.Model}, numbers, a.Spent, a.MoneySaved, a.MoneyRecovery))
	}
	return out
}

// csvRow is one account. Clients choose the names, so a name that a spreadsheet would run as a formula is
// quoted.
func csvRow(names []string, numbers []int64, sums ...meter.Money) []string {
	var out []string
	for _, name := range names {
		if name != "" && (name[0] == '=' || name[0] == '+' || name[0] == '-' || name[0] == '@' || name[0] < ' ') {
			name = "'" + name
		}
		out = append(out, name)
	}
	for _, n := range numbers {
		out = append(out, strconv.FormatInt(n, 10))
	}
	for _, m := range sums {
		out = append(out, m.String())
	}
	return out
}
