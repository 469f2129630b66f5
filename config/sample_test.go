package config

import (
	"github.com/ctxgate/ctxgate/internal/secret"
	"github.com/ctxgate/ctxgate/internal/unit"
)

// sample has one key of every kind the loader knows, in tables shaped like the real ones.
type sample struct {
	Listen   string         `key:"listen"`
	Level    level          `key:"log_level" oneof:"DEBUG,INFO,WARN,ERROR"`
	JSONLogs bool           `key:"structured_logging"`
	Token    secret.Text    `key:"auth_token" literal:"ok"`
	Secret   secret.Text    `key:"secret"`
	Rate     int            `key:"rate_limit_per_minute" min:"0" max:"100000"`
	Offset   int64          `key:"offset"`
	Share    float64        `key:"share" min:"0" max:"1"`
	Body     unit.Bytes     `key:"max_body" min:"1KiB" max:"1GiB"`
	Tags     []string       `key:"tags"`
	Turns    *int           `key:"turns" min:"1"`
	Masking  masking        `key:"masking"`
	Pruner   pruner         `key:"mcp_pruner"`
	Servers  []server       `key:"servers"`
	Schemas  map[string]obs `key:"observation_masking"`
	Health   health         `key:",inline"`
	limits   `key:",inline"`
	Ignored  string
	hidden   string `key:"hidden"` //nolint:unused // shows that an unexported field is no key
}

type level string

type health struct {
	Interval unit.Duration `key:"healthcheck_interval"`
	Timeout  unit.Duration `key:"healthcheck_timeout"`
}

type limits struct {
	Response unit.Duration `key:"response_timeout" min:"1s" max:"1h"`
}

type masking struct {
	MaxChars  int  `key:"max_chars" min:"0"`
	HeadChars int  `key:"head_chars" min:"0"`
	Recover   bool `key:"recover_line"`
}

type pruner struct {
	Backend    string      `key:"backend" oneof:"heuristic,deepinfra,rerank" env:"KIMI_PRUNING_BACKEND"`
	MaxEntries int         `key:"cache_max_entries" env:"MCP_PRUNER_CACHE_MAX_ITEMS,MCP_PRUNER_CACHE_MAX_ENTRIES"`
	APIKey     secret.Text `key:"api_key" env:"DEEPINFRA_API_KEY"`
}

type server struct {
	ID      string                 `key:"id"`
	Command []string               `key:"command"`
	Env     map[string]string      `key:"env"`
	URL     string                 `key:"url"`
	Headers map[string]secret.Text `key:"headers" literal:"ok"`
	Keys    map[string]secret.Text `key:"keys"`
	Startup unit.Duration          `key:"startup_timeout"`
	Grace   unit.Duration          `key:"shutdown_grace"`
}

func (s *server) SetDefaults() { s.Startup, s.Grace = seconds(20), seconds(3) }

type obs struct {
	Enabled bool `key:"enabled"`
	Window  int  `key:"window_turns"`
}

func (o *obs) SetDefaults() { o.Window = 8 }

func seconds(n float64) unit.Duration {
	d, err := unit.Seconds(n)
	if err != nil {
		panic(err)
	}
	return d
}

func sampleDefaults() sample {
	return sample{
		Listen:  "127.0.0.1:8000",
		Level:   "INFO",
		Tags:    []string{"a"},
		Masking: masking{MaxChars: 4000, HeadChars: 2000, Recover: true},
		Pruner:  pruner{Backend: "heuristic", MaxEntries: 256},
		Schemas: map[string]obs{"schema1": {Enabled: true, Window: 8}},
		Health:  health{Interval: seconds(30), Timeout: seconds(5)},
		limits:  limits{Response: seconds(30)},
	}
}
