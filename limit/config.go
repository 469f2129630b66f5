package limit

import (
	"cmp"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/ctxgate/ctxgate/internal/glob"
	"github.com/ctxgate/ctxgate/internal/unit"
)

// Config is how often clients may call.
type Config struct {
	// How many calls a client may make per minute, over all listeners and endpoints together: MCP requests
	// and notifications, each message of a batch, requests to models, calls of the pruner. Default 0: any
	// number. [[limits]] has finer ones.
	PerMinute int `key:"rate_limit_per_minute" min:"0"`

	// Limits for some tenants, credentials, servers, tools and models. All entries that match a call apply,
	// beside rate_limit_per_minute: the tightest decides. At most 100. What is beyond a limit is refused
	// (HTTP 429, Retry-After). docs/limits.md has examples.
	Limits []Entry `key:"limits"`
}

// maxEntries bounds what one call is compared with.
const maxEntries = 100

// longestRefill is how long a bucket may take to fill.
const longestRefill = 366 * 24 * time.Hour

// Entry limits the calls that match it.
type Entry struct {
	// What the error of a refused call says, beside "Rate limit exceeded". Default: the number of the entry,
	// as in "limits[0]".
	Name string `key:"name"`

	// The tenants whose calls count: a name, with * for any characters. Default empty: all.
	Tenant string `key:"tenant"`

	// The credentials whose calls count: the name of a token, with * for any characters. Default empty: all.
	Credential string `key:"credential"`

	// The servers whose calls count: an id, with * for any characters, in any letter case. Default empty: all.
	// An entry with neither server, tool nor model counts every message of its callers, as
	// rate_limit_per_minute does; an entry with one of them counts the calls that the access rules allow.
	Server string `key:"server"`

	// The tools whose calls count: the server's own name, with * for any characters, in any letter case.
	// Default empty: all.
	Tool string `key:"tool"`

	// The models whose requests count: a name, with * for any characters, in any letter case. Default empty: all.
	Model string `key:"model"`

	// How many calls in each time of every. Default 0: any number.
	Rate int `key:"rate" min:"0" max:"100000000"`

	// The time of rate; a duration. Default 1m. Must be positive.
	Every unit.Duration `key:"every"`

	// How many calls may come at once, after a pause; from then on they come one by one, evenly. Default 0: as
	// many as rate.
	Burst int `key:"burst" min:"0" max:"100000000"`

	// How many calls may be in flight. Default 0: any number.
	Concurrency int `key:"concurrency" min:"0"`

	// Who shares the limit: "tenant" (each tenant has its own), "subject" (each caller), "credential" (each
	// token of a tenant) or "match" (all that match the entry share one). Default "tenant".
	Per string `key:"per" oneof:"tenant,subject,credential,match"`
}

// SetDefaults sets what an entry leaves out.
func (e *Entry) SetDefaults() { e.Every, e.Per = unit.Duration(time.Minute), "tenant" }

// Validate lists every problem; each text begins with the key it is about.
func (c Config) Validate() []error {
	var problems []error
	if len(c.Limits) > maxEntries {
		problems = append(problems, fmt.Errorf("limits: there are more than %d", maxEntries))
	}
	for i, e := range c.Limits {
		for _, err := range e.validateEntry() {
			problems = append(problems, fmt.Errorf("limits[%d].%w", i, err))
		}
	}
	return problems
}

func (e Entry) validateEntry() []error {
	var problems []error
	for _, p := range []struct{ key, pattern string }{
		{"name", e.Name}, {"tenant", e.Tenant}, {"credential", e.Credential}, {"server", e.Server}, {"tool", e.Tool}, {"model", e.Model},
	} {
		if len(p.pattern) > glob.MaxLength {
			problems = append(problems, fmt.Errorf("%s: is longer than %d bytes", p.key, glob.MaxLength))
		}
	}
	if e.Model != "" && (e.Server != "" || e.Tool != "") {
		problems = append(problems, errors.New("model: no call is for a model and for a server or tool; make two entries"))
	}
	if e.Rate == 0 && e.Concurrency == 0 {
		problems = append(problems, errors.New("rate: set rate, concurrency or both"))
	}
	if e.Rate == 0 && e.Burst > 0 {
		problems = append(problems, errors.New("burst: needs rate"))
	}
	if e.Every <= 0 || e.Every.D() > longestRefill {
		problems = append(problems, errors.New("every: must be positive, and at most a year"))
	} else if e.Rate > 0 && float64(e.Burst)/float64(e.Rate)*float64(e.Every) > float64(longestRefill) {
		problems = append(problems, errors.New("burst: at this rate it takes more than a year to fill"))
	}
	return problems
}

// namedEntry is an entry with the name that errors give it.
type namedEntry struct {
	Entry
	name string
}

// entries are all limits, with rate_limit_per_minute as the first.
func (c Config) entries() []namedEntry {
	var all []namedEntry
	if n := min(c.PerMinute, maxRate); n > 0 {
		all = append(all, namedEntry{Entry: Entry{Rate: n, Every: unit.Duration(time.Minute), Per: "subject"}})
	}
	for i, e := range c.Limits {
		all = append(all, namedEntry{e, cmp.Or(e.Name, "limits["+strconv.Itoa(i)+"]")})
	}
	return all
}

// id identifies the entry in all replicas. Of several that are equal, each has its own.
func (e Entry) id(seen map[string]int) string {
	text := fmt.Sprintf("%q %q %q %q %q %q %d %d %d %d %q", e.Name, e.Tenant, e.Credential, e.Server, e.Tool, e.Model, e.Rate, e.Every, e.Burst, e.Concurrency, e.Per)
	seen[text]++
	return hashTexts(text, strconv.Itoa(seen[text]))
}

// isForCallers says whether the entry looks at nothing but the caller.
func (e Entry) isForCallers() bool { return e.Server == "" && e.Tool == "" && e.Model == "" }

func (e Entry) rate() rate {
	r := rate{calls: int64(e.Rate), every: e.Every.D(), burst: int64(e.Burst)}
	if r.burst == 0 {
		r.burst = r.calls
	}
	return r
}

// ownerOf is whose bucket a caller uses.
func (e Entry) ownerOf(c Caller) Caller {
	switch e.Per {
	case "subject":
		return Caller{Tenant: c.Tenant, Issuer: c.Issuer, Subject: c.Subject}
	case "credential":
		return Caller{Tenant: c.Tenant, Credential: c.Credential}
	case "match":
		return Caller{}
	}
	return Caller{Tenant: c.Tenant}
}
