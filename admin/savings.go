package admin

import (
	"encoding/csv"
	"encoding/json"
	"net/http"
	"strconv"
	"time"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/front"
	"github.com/ctxgate/ctxgate/meter"
)

// unitNote says what the numbers are, beside the numbers.
const unitNote = "billed, unmasked, recovery, saved and missed are tokens of fresh input that cost the same, by the provider's usage " +
	"and its configured cache prices; saved = unmasked - billed, and recovery is a part of billed; money is in the currency of the configured " +
	"prices, output included"

// Savings mounts the accounts of what masking saved: JSON, or ?format=csv for a sheet of models
// and ?format=csv&by=tool for one of tools.
func Savings(mux *http.ServeMux, read func() meter.Savings, refuse front.Refuse) {
	mux.HandleFunc("GET /savings", func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		format, by := q.Get("format"), q.Get("by")
		switch {
		case format == "" || format == "json":
			w.Header().Set("Content-Type", "application/json")
			out := json.NewEncoder(w)
			out.SetIndent("", "  ")
			_ = out.Encode(newSheet(read(), time.Now())) // the operator has gone away
		case format == "csv" && (by == "" || by == "model" || by == "tool"):
			w.Header().Set("Content-Type", "text/csv; charset=utf-8")
			out := csv.NewWriter(w)
			_ = out.WriteAll(rows(read(), by == "tool"))
		default:
			refuse(w, r, fault.New(fault.BadParams, "format is json or csv, and by is model or tool"))
		}
	})
}

// sheet is the accounts as JSON has them.
type sheet struct {
	Since  time.Time   `json:"since"`
	Until  time.Time   `json:"until"`
	Units  string      `json:"units"`
	Total  account     `json:"total"`
	Models []account   `json:"models"`
	Tools  []toolSheet `json:"tools"`
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

type toolSheet struct {
	Tenant   string      `json:"tenant"`
	Provider string      `json:"provider"`
	Model    string      `json:"model"`
	Tool     string      `json:"tool"`
	Results  int64       `json:"results"`
	Cleared  int64       `json:"cleared"`
	Saved    int64       `json:"saved"`
	Money    json.Number `json:"money_saved"`
}

func newSheet(s meter.Savings, now time.Time) sheet {
	out := sheet{
		Since: s.Since.UTC().Truncate(time.Second), Until: now.UTC().Truncate(time.Second), Units: unitNote,
		Total: newAccount(s.Total), Models: []account{}, Tools: []toolSheet{},
	}
	for _, a := range s.Models {
		out.Models = append(out.Models, newAccount(a))
	}
	for _, t := range s.Tools {
		out.Tools = append(out.Tools, toolSheet{t.Tenant, t.Provider, t.Model, t.Tool, t.Results, t.Tokens, t.Saved, json.Number(t.MoneySaved.String())})
	}
	return out
}

func newAccount(a meter.Account) account {
	out := account{
		Tenant: a.Tenant, Provider: a.Provider, Model: a.Model, Requests: a.Requests, Recovers: a.Recoveries,
		Fresh: a.Used.Fresh, Cached: a.Used.Cached, Created: a.Used.Created, Long: a.Used.Long, Output: a.Used.Output,
		Billed: a.Cost.Billed, Unmasked: a.Cost.Unmasked, Recovery: a.Cost.Recovery, Saved: a.Cost.Saved(),
		Misses: map[string]miss{},
		Money: money{
			Billed: json.Number(a.Spent.String()), Saved: json.Number(a.MoneySaved.String()),
			Recovery: json.Number(a.MoneyRecall.String()), Unpriced: a.Unpriced,
		},
	}
	for _, cause := range meter.Causes() {
		out.Misses[cause.String()] = miss{a.Misses[cause].Requests, a.Misses[cause].Tokens}
	}
	return out
}

// rows are the accounts as a sheet has them: a header, and a line for each account. There is no
// line of sums, so that whoever adds up a column counts nothing twice.
func rows(s meter.Savings, byTool bool) [][]string {
	if byTool {
		out := [][]string{{"tenant", "provider", "model", "tool", "results", "cleared", "saved", "money_saved"}}
		for _, t := range s.Tools {
			out = append(out, line([]string{t.Tenant, t.Provider, t.Model, t.Tool}, []int64{t.Results, t.Tokens, t.Saved}, t.MoneySaved))
		}
		return out
	}
	head := []string{
		"tenant", "provider", "model", "requests", "recovery_requests", "fresh", "cached", "created", "created_1h", "output",
		"billed", "unmasked", "recovery", "saved", "unpriced_requests",
	}
	for _, cause := range meter.Causes() {
		head = append(head, "misses_"+cause.String(), "missed_"+cause.String())
	}
	out := [][]string{append(head, "money_billed", "money_saved", "money_recovery")}
	for _, a := range s.Models {
		numbers := []int64{
			a.Requests, a.Recoveries, a.Used.Fresh, a.Used.Cached, a.Used.Created, a.Used.Long, a.Used.Output,
			a.Cost.Billed, a.Cost.Unmasked, a.Cost.Recovery, a.Cost.Saved(), a.Unpriced,
		}
		for _, cause := range meter.Causes() {
			numbers = append(numbers, a.Misses[cause].Requests, a.Misses[cause].Tokens)
		}
		out = append(out, line([]string{a.Tenant, a.Provider, a.Model}, numbers, a.Spent, a.MoneySaved, a.MoneyRecall))
	}
	return out
}

// line is one account. A name that a sheet would take for a formula is quoted: clients choose them.
func line(names []string, numbers []int64, sums ...meter.Money) []string {
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
