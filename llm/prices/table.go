package prices

import (
	"bytes"
	_ "embed" // the table
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/pelletier/go-toml/v2"

	"github.com/ctxgate/ctxgate/internal/glob"
)

//go:embed table.toml
var builtInFile []byte

// BuiltIn is the table of this program.
var BuiltIn = sync.OnceValue(func() *Table {
	t, err := Parse(builtInFile)
	if err != nil {
		panic(err) // a test reads the same file
	}
	return t
})

// Table is a list of prices.
type Table struct {
	providers []*providerRow
	rows      []*row
}

// vendorRows stands in a row for the provider that the model's name begins with.
const vendorRows = "vendor"

type providerRow struct {
	Name      string   `toml:"name"`
	OwnModels bool     `toml:"own_models"`
	Hosts     []string `toml:"hosts"`
	Vendors   []string `toml:"vendors"`

	hosts []glob.Pattern
	rows  []*row
}

type row struct {
	Provider   string    `toml:"provider"`
	Model      string    `toml:"model"`
	SameAs     string    `toml:"same_as"`
	Factor     float64   `toml:"factor"`
	Input      float64   `toml:"input"`
	Output     float64   `toml:"output"`
	CacheRead  *float64  `toml:"cache_read"`
	CacheWrite float64   `toml:"cache_write"`
	WriteHour  float64   `toml:"write_1h"`
	TTL        duration  `toml:"ttl"`
	MaxTTL     duration  `toml:"ttl_max"`
	MinTokens  int       `toml:"min_tokens"`
	Context    int       `toml:"context"`
	Cache      CacheKind `toml:"cache"`
	Lookback   int       `toml:"lookback"`
	Step       *stepRow  `toml:"step"`
	Marked     *struct {
		CacheRead  float64  `toml:"cache_read"`
		CacheWrite float64  `toml:"cache_write"`
		TTL        duration `toml:"ttl"`
	} `toml:"marked"`
	Confidence string `toml:"confidence"`
	Note       string `toml:"note"`
	Source     string `toml:"source"`
	Date       string `toml:"date"`

	pattern glob.Pattern
}

type stepRow struct {
	AboveTokens int     `toml:"above_tokens"`
	Input       float64 `toml:"input"`
	Output      float64 `toml:"output"`
	CacheRead   float64 `toml:"cache_read"`
	CacheWrite  float64 `toml:"cache_write"`
	WriteHour   float64 `toml:"write_1h"`
}

type duration time.Duration

func (d *duration) UnmarshalText(text []byte) error {
	parsed, err := time.ParseDuration(string(text))
	*d = duration(parsed)
	return err
}

// Parse reads a table, and refuses one with a mistake.
func Parse(file []byte) (*Table, error) {
	var content struct {
		Providers []*providerRow `toml:"providers"`
		Rows      []*row         `toml:"rows"`
	}
	d := toml.NewDecoder(bytes.NewReader(file)).DisallowUnknownFields()
	if err := d.Decode(&content); err != nil {
		return nil, fmt.Errorf("price table: %w", err)
	}
	t := &Table{content.Providers, content.Rows}
	var problems []error
	for _, p := range t.providers {
		for _, host := range p.Hosts {
			p.hosts = append(p.hosts, glob.New(host))
		}
		if p.Name == "" || len(p.Hosts) == 0 || t.named(p.Name) != p {
			problems = append(problems, fmt.Errorf("provider %q: needs hosts and a name of its own", p.Name))
		}
	}
	for _, r := range t.rows {
		r.pattern = glob.New(plainName(r.Model))
		p := t.named(r.Provider)
		if p == nil {
			problems = append(problems, fmt.Errorf("row %q: no provider %q", r.Model, r.Provider))
			continue
		}
		if err := r.check(t); err != nil {
			problems = append(problems, fmt.Errorf("row %q of %s: %w", r.Model, r.Provider, err))
		}
		if slices.ContainsFunc(p.rows, func(before *row) bool { return before.pattern.Match(sampleName(r.Model)) }) {
			problems = append(problems, fmt.Errorf("row %q of %s: a row before it matches the same models", r.Model, r.Provider))
		}
		p.rows = append(p.rows, r)
	}
	if err := errors.Join(problems...); err != nil {
		return nil, fmt.Errorf("price table: %w", err)
	}
	return t, nil
}

// sampleName is the shortest name that a row's model matches.
func sampleName(pattern string) string {
	return strings.ReplaceAll(plainName(pattern), "*", "")
}

var dateForm = regexp.MustCompile(`^20\d\d-(0[1-9]|1[0-2])(-(0[1-9]|[12]\d|3[01]))?$`)

func (r *row) check(t *Table) error {
	switch {
	case r.Model == "" || r.Source == "" || !dateForm.MatchString(r.Date):
		return errors.New("needs model, source and date (2026-11 or 2026-11-15)")
	case !slices.Contains([]string{"", "conflict", "low"}, r.Confidence):
		return fmt.Errorf("confidence %q is not known", r.Confidence)
	case r.TTL < 0 || r.MaxTTL < 0 || r.MaxTTL > 0 && r.MaxTTL < r.TTL:
		return errors.New("ttl: must be positive, and ttl_max longer")
	case r.MinTokens < 0 || r.Context < 0 || r.Lookback < 0 || r.Factor < 0:
		return errors.New("a number is negative")
	case r.SameAs != "":
		return r.checkSame(t)
	case !slices.Contains([]CacheKind{Marked, AutomaticMark, LongestPrefix, Units}, r.Cache):
		return fmt.Errorf("cache %q is not known", r.Cache)
	case r.Factor != 0:
		return errors.New("factor: only beside same_as")
	}
	read := r.Input
	if r.CacheRead != nil {
		read = *r.CacheRead
	}
	if err := checkRates(Rates{r.Input, r.Output, read, r.CacheWrite, r.WriteHour}); err != nil {
		return err
	}
	if s := r.Step; s != nil {
		if s.AboveTokens <= 0 || s.Input <= r.Input {
			return errors.New("step: needs above_tokens and a higher price")
		}
		if err := checkRates(Rates{s.Input, s.Output, s.CacheRead, s.CacheWrite, s.WriteHour}); err != nil {
			return fmt.Errorf("step: %w", err)
		}
	}
	if m := r.Marked; m != nil && (m.CacheRead <= 0 || m.CacheWrite < m.CacheRead || m.TTL <= 0) {
		return errors.New("marked: needs cache_read, cache_write and ttl")
	}
	return nil
}

func (r *row) checkSame(t *Table) error {
	if r.Input != 0 || r.Output != 0 || r.CacheRead != nil || r.CacheWrite != 0 || r.Step != nil || r.Marked != nil || r.Cache != "" {
		return errors.New("same_as: has no prices of its own")
	}
	if other := t.named(r.SameAs); r.SameAs != vendorRows && (other == nil || !other.OwnModels) {
		return fmt.Errorf("same_as: %q is no provider of its own models", r.SameAs)
	}
	return nil
}

func checkRates(r Rates) error {
	for _, n := range []float64{r.Input, r.Output, r.CacheRead, r.CacheWrite} {
		if n <= 0 || math.IsNaN(n) || math.IsInf(n, 0) {
			return errors.New("a price is missing or not positive")
		}
	}
	if r.CacheRead > r.CacheWrite || r.WriteHour != 0 && r.WriteHour < r.CacheWrite {
		return errors.New("reading from the cache costs more than writing, or writing for an hour less")
	}
	return nil
}

func (t *Table) named(name string) *providerRow {
	for _, p := range t.providers {
		if p.Name == name {
			return p
		}
	}
	return nil
}

// lastLiteral is the last text of the pattern that is not a wildcard.
func (r *row) lastLiteral() string {
	for _, literal := range slices.Backward(r.pattern) {
		if literal != "" {
			return literal
		}
	}
	return ""
}

// ttl is the longest life of an entry.
func (r *row) ttl() time.Duration {
	if longest := time.Duration(max(r.TTL, r.MaxTTL)); longest > 0 {
		return longest
	}
	return unknownTTL
}

// price is the price of a row with prices of its own, at an API of a kind.
func (r *row) price(kind string) Price {
	p := Price{
		Rates: Rates{r.Input, r.Output, r.Input, r.Input, r.WriteHour},
		TTL:   r.ttl(), MinTokens: r.MinTokens, Context: r.Context, Cache: r.Cache, Lookback: r.Lookback,
		Provider: r.Provider, Model: r.Model, Source: r.Source, Date: r.Date, Note: r.Note, Confidence: r.Confidence,
	}
	if r.CacheRead != nil {
		p.CacheRead, p.CacheWrite, p.HasCachePrice = *r.CacheRead, r.CacheWrite, true
	}
	if s := r.Step; s != nil {
		p.Step = Step{s.AboveTokens, Rates{s.Input, s.Output, s.CacheRead, s.CacheWrite, s.WriteHour}}
	}
	if m := r.Marked; m != nil && kind == markedWire {
		if factor := p.Step.Input / p.Input; factor > 0 {
			p.Step.CacheRead, p.Step.CacheWrite = m.CacheRead*factor, m.CacheWrite*factor
		}
		p.CacheRead, p.CacheWrite, p.TTL = m.CacheRead, m.CacheWrite, time.Duration(m.TTL)
		p.Cache, p.Lookback = Marked, markedLookback
	}
	return p
}

// markedLookback is how many blocks before a mark the providers with marks search for an earlier one.
const markedLookback = 20

// Rows returns the prices of all rows with prices of their own, in the order of the file.
func (t *Table) Rows() []Price {
	var all []Price
	for _, r := range t.rows {
		if r.SameAs == "" {
			all = append(all, r.price(""))
		}
	}
	return all
}
