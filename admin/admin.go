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
	// /api/v1/status, and reads the config file again at POST /api/v1/reload. Default "127.0.0.1:8090"; empty means none.
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
	"and its cache prices; saved = unmasked - billed, and recovery is a part of billed; parts says where it was saved: unmasked - hub - shortened - masked - " +
	"steps - cache + recovery = billed, in tokens and in money; money is in the currency of the prices, output included"

// estimateNote explains what the hub saved where no model's requests were seen.
const estimateNote = "estimate: tools only; tokens that were not sent into the contexts of models, each of which would have been paid for on every later turn; " +
	"what passes through the LLM proxy is counted in total, with its price"

// savingsReport is the JSON of /savings.
type savingsReport struct {
	Since  time.Time     `json:"since"`
	Until  time.Time     `json:"until"`
	Units  string        `json:"units"`
	Total  account       `json:"total"`
	Hub    hubSavings    `json:"hub"`
	Models []account     `json:"models"`
	Tools  []toolSavings `json:"tools"`
}

// hubSavings is what the MCP endpoint cut, whether or not the requests of models were seen.
type hubSavings struct {
	Note           string `json:"note"`
	TextsCut       int64  `json:"texts_cut"`
	CharsCut       int64  `json:"chars_cut"`
	TokensCut      int64  `json:"tokens_cut_estimate"`
	ReadBacks      int64  `json:"read_backs"`
	CharsReadBack  int64  `json:"chars_read_back"`
	TokensReadBack int64  `json:"tokens_read_back_estimate"`
}

// SavedParts are the parts of what was saved; those that cost more are negative.
type SavedParts[N int64 | json.Number] struct {
	Hub       N `json:"hub"`       // results that the MCP endpoint cut
	Shortened N `json:"shortened"` // new results that the LLM proxy shortened
	Masked    N `json:"masked"`    // old results that it masked
	Steps     N `json:"steps"`     // requests below a price step
	Cache     N `json:"cache"`     // input that was written to the provider's cache again
}

func newParts(p meter.SavedParts) SavedParts[int64] {
	return SavedParts[int64]{p.AtHub, p.Shortened, p.Masked, p.Steps, p.Cache}
}

func newMoneyParts(p meter.SavedMoney) SavedParts[json.Number] {
	n := func(m meter.Money) json.Number { return json.Number(m.String()) }
	return SavedParts[json.Number]{n(p.AtHub), n(p.Shortened), n(p.Masked), n(p.Steps), n(p.Cache)}
}

type account struct {
	Tenant   string `json:"tenant,omitempty"`
	Provider string `json:"provider,omitempty"`
	Model    string `json:"model,omitempty"`

	Requests int64             `json:"requests"`
	Recovers int64             `json:"recovery_requests"`
	Fresh    int64             `json:"fresh"`
	Cached   int64             `json:"cached"`
	Created  int64             `json:"created"`
	Long     int64             `json:"created_1h"`
	Output   int64             `json:"output"`
	Billed   int64             `json:"billed"`
	Unmasked int64             `json:"unmasked"`
	Recovery int64             `json:"recovery"`
	Saved    int64             `json:"saved"`
	Parts    SavedParts[int64] `json:"parts"`
	Misses   map[string]miss   `json:"cache_misses"`
	Money    money             `json:"money"`

	NotMasking string `json:"not_masking,omitempty"` // why the last request was not masked
}

type miss struct {
	Requests int64 `json:"requests"`
	Missed   int64 `json:"missed"`
}

type money struct {
	Billed   json.Number             `json:"billed"`
	Unmasked json.Number             `json:"unmasked"`
	Saved    json.Number             `json:"saved"`
	Recovery json.Number             `json:"recovery"`
	Parts    SavedParts[json.Number] `json:"parts"`
	Unpriced int64                   `json:"unpriced_requests"`
}

type toolSavings struct {
	Tenant   string            `json:"tenant"`
	Provider string            `json:"provider"`
	Model    string            `json:"model"`
	Tool     string            `json:"tool"`
	Results  int64             `json:"results"`
	Cleared  int64             `json:"cleared"`
	Saved    int64             `json:"saved"`
	Parts    SavedParts[int64] `json:"parts"`
	Money    json.Number       `json:"money_saved"`
}

func newReport(s meter.Savings, now time.Time) savingsReport {
	out := savingsReport{
		Since: s.Since.UTC().Truncate(time.Second), Until: now.UTC().Truncate(time.Second), Units: unitNote,
		Total: newAccount(s.Total), Hub: newHubSavings(s.Hub), Models: []account{}, Tools: []toolSavings{},
	}
	for _, a := range s.Models {
		out.Models = append(out.Models, newAccount(a))
	}
	for _, t := range s.Tools {
		out.Tools = append(out.Tools, toolSavings{t.Tenant, t.Provider, t.Model, t.Tool, t.Results, t.Tokens, t.Saved, newParts(t.Parts), json.Number(t.MoneySaved.String())})
	}
	return out
}

func newHubSavings(h meter.HubSavings) hubSavings {
	return hubSavings{estimateNote, h.TextsCut, h.CharsCut, h.TokensCut(), h.ReadBacks, h.CharsReadBack, h.TokensReadBack()}
}

func newAccount(a meter.Account) account {
	out := account{
		Tenant: a.Tenant, Provider: a.Provider, Model: a.Model, Requests: a.Requests, Recovers: a.Recoveries,
		Fresh: a.Usage.Fresh, Cached: a.Usage.Cached, Created: a.Usage.Created, Long: a.Usage.Long, Output: a.Usage.Output,
		Billed: a.Cost.Billed, Unmasked: a.Cost.Unmasked, Recovery: a.Cost.Recovery, Saved: a.Cost.Saved(),
		Parts: newParts(a.Parts), Misses: map[string]miss{}, NotMasking: a.NotMasking,
		Money: money{
			Billed: json.Number(a.Spent.String()), Unmasked: json.Number((a.Spent + a.MoneySaved).String()), Saved: json.Number(a.MoneySaved.String()),
			Recovery: json.Number(a.MoneyRecovery.String()), Parts: newMoneyParts(a.MoneyParts), Unpriced: a.Unpriced,
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
		out := [][]string{append([]string{"tenant", "provider", "model", "tool", "results", "cleared", "saved", "money_saved"}, partColumns...)}
		for _, t := range s.Tools {
			row := csvRow([]string{t.Tenant, t.Provider, t.Model, t.Tool}, []int64{t.Results, t.Tokens, t.Saved}, t.MoneySaved)
			out = append(out, append(row, csvParts(t.Parts)...))
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
	out := [][]string{append(append(head, "money_billed", "money_saved", "money_recovery"), partColumns...)}
	for _, a := range s.Models {
		numbers := []int64{
			a.Requests, a.Recoveries, a.Usage.Fresh, a.Usage.Cached, a.Usage.Created, a.Usage.Long, a.Usage.Output,
			a.Cost.Billed, a.Cost.Unmasked, a.Cost.Recovery, a.Cost.Saved(), a.Unpriced,
		}
		for _, cause := range meter.MissCauses() {
			numbers = append(numbers, a.CacheMisses[cause].Requests, a.CacheMisses[cause].Tokens)
		}
		row := csvRow([]string{a.Tenant, a.Provider, a.Model}, numbers, a.Spent, a.MoneySaved, a.MoneyRecovery)
		out = append(out, append(row, csvParts(a.Parts)...))
	}
	return out
}

// partColumns are the columns of csvParts. They are the last: columns are only added at the end.
var partColumns = []string{"saved_hub", "saved_shortened", "saved_masked", "saved_steps", "saved_cache"}

func csvParts(p meter.SavedParts) []string {
	var out []string
	for _, n := range []int64{p.AtHub, p.Shortened, p.Masked, p.Steps, p.Cache} {
		out = append(out, strconv.FormatInt(n, 10))
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
