package prunerd

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"

	"github.com/ctxgate/ctxgate/front"
	"github.com/ctxgate/ctxgate/internal/secret"
	"github.com/ctxgate/ctxgate/internal/unit"
	"github.com/ctxgate/ctxgate/rerank"
)

// The backends.
const (
	Heuristic = "heuristic" // the local engine alone
	DeepInfra = "deepinfra" // and a reranker in DeepInfra's cloud
	Rerank    = "rerank"    // and a reranker of one's own
)

// cloudAlias is another name for DeepInfra.
const cloudAlias = "cloud"

const (
	defaultListen       = "127.0.0.1:8006"
	defaultDeepInfraURL = "https://api.deepinfra.com/v1/inference/Qwen/Qwen3-Reranker-0.6B"
)

// Config is the pruner's listener, backend and limits.
type Config struct {
	// The address of the pruner's listener. MCP_PRUNER_HOST and MCP_PRUNER_PORT override its parts.
	// Default "127.0.0.1:8006"; empty means no listener in `ctxgate serve`, and the default in
	// `ctxgate pruner`.
	Listen string `key:"listen" reload:"restart"`

	// Offer the pruner's tools at the MCP endpoint, too, as a built-in server of the id "pruner". A
	// configured server of that id replaces it. Default true; with profile = "agents", false.
	Builtin bool `key:"builtin" reload:"restart"`

	// What decides which lines matter: "heuristic" (the local engine alone; nothing leaves the
	// machine), "deepinfra" or its alias "cloud" (texts are also sent to DeepInfra, with the key in
	// the variable DEEPINFRA_API_KEY) or "rerank" (texts are also sent to rerank_url). Default
	// "heuristic". The variable KIMI_PRUNING_BACKEND overrides the file, unless its value is unknown.
	Backend string `key:"backend" oneof:"heuristic,deepinfra,cloud,rerank"`

	// The longest text that is pruned, in characters; a longer one is returned whole. Default
	// 2000000: some 600000 tokens, more than most models accept, and pruned in well under the second
	// and a half that callers allow.
	MaxInputChars int `key:"max_input_chars" min:"1" max:"100000000" env:"MCP_PRUNER_MAX_INPUT_CHARS"`

	// How long what the pruner leaves out can be read back after it was last shown, in seconds.
	// Default 0: as state.ttl.
	PruneIDTTL int `key:"prune_id_ttl_s" min:"0" max:"3153600000" env:"MCP_PRUNER_PRUNE_ID_TTL_S" reload:"restart"`

	// How many texts are pruned at once; others wait within their own timeout. Default 0: the number
	// of cores.
	MaxRuns int `key:"max_runs" min:"0" reload:"restart"`

	// The URL of DeepInfra's reranker. Default empty: its Qwen3-Reranker-0.6B.
	DeepInfraURL string `key:"deepinfra_url" env:"DEEPINFRA_ENDPOINT_URL"`

	// The timeout of requests to DeepInfra, in milliseconds; a call's own timeout_ms limits them, too.
	// Default 20000.
	DeepInfraTimeoutMS int `key:"deepinfra_timeout_ms" min:"1" max:"3600000" env:"DEEPINFRA_TIMEOUT_MS"`

	// The most chunks of a text that are sent to DeepInfra, each of 8 to 20 lines. Default 64.
	DeepInfraMaxDocs int `key:"deepinfra_max_docs" min:"1" max:"4096" env:"DEEPINFRA_MAX_DOCS"`

	// How long a reranker's scores are cached, in seconds. Default 30; 0 disables the cache.
	CacheTTL int `key:"cache_ttl_s" min:"0" max:"3153600000" env:"MCP_PRUNER_CACHE_TTL_S"`

	// How many results of a reranker are cached. Default 256; 0 disables the cache.
	CacheMaxEntries int `key:"cache_max_entries" min:"0" env:"MCP_PRUNER_CACHE_MAX_ITEMS,MCP_PRUNER_CACHE_MAX_ENTRIES"`

	// The URL of the reranker for the backend "rerank", path included: "http://127.0.0.1:8080/rerank".
	// Default empty; that backend needs it.
	RerankURL string `key:"rerank_url"`

	// The API of that reranker: "jina" (Jina, Cohere, llama.cpp, vLLM) or "tei" (Hugging Face's
	// text-embeddings-inference). Default "jina".
	RerankShape string `key:"rerank_shape" oneof:"jina,tei"`

	// The model to request from that reranker, if it has several. Default empty: none is sent.
	RerankModel string `key:"rerank_model"`

	// The API key of that reranker. Default empty: none is sent.
	RerankKey secret.Text `key:"rerank_key"`

	// The timeout of requests to that reranker, in milliseconds; a call's own timeout_ms limits them,
	// too. Default 20000.
	RerankTimeoutMS int `key:"rerank_timeout_ms" min:"1" max:"3600000"`

	// The most chunks of a text that are sent to that reranker, each of 8 to 20 lines. Default 64.
	RerankMaxDocs int `key:"rerank_max_docs" min:"1" max:"4096"`

	// Set only by environment variables.

	Host         string      `key:"host,env" env:"MCP_PRUNER_HOST"`
	Port         *int        `key:"port,env" env:"MCP_PRUNER_PORT" min:"0" max:"65535"`
	EnvBackend   string      `key:"kimi_pruning_backend,env" env:"KIMI_PRUNING_BACKEND"`
	DeepInfraKey secret.Text `key:"deepinfra_api_key,env" env:"DEEPINFRA_API_KEY"`
}

// Default is the configuration of an empty file.
func Default() Config {
	return Config{
		Listen: defaultListen, Builtin: true, Backend: Heuristic, MaxInputChars: 2_000_000,
		DeepInfraTimeoutMS: 20_000, DeepInfraMaxDocs: 64, CacheTTL: 30, CacheMaxEntries: 256,
		RerankShape: rerank.Jina, RerankTimeoutMS: 20_000, RerankMaxDocs: 64,
	}
}

// ApplyListenEnv overrides host and port of the address by those of the environment.
func (c *Config) ApplyListenEnv() {
	if c.Host == "" && c.Port == nil {
		return
	}
	host, port, err := net.SplitHostPort(cmp.Or(c.Listen, defaultListen))
	if err != nil {
		return // Validate reports the address
	}
	host = cmp.Or(c.Host, host)
	if c.Port != nil {
		port = strconv.Itoa(*c.Port)
	}
	c.Listen, c.Host, c.Port = net.JoinHostPort(host, port), "", nil
}

// ApplyBackendEnv overrides the backend by that of the environment; false if that is unknown, and
// ignored.
func (c *Config) ApplyBackendEnv() (known bool) {
	asked := strings.ToLower(strings.TrimSpace(c.EnvBackend))
	c.EnvBackend = ""
	switch asked {
	case Heuristic, DeepInfra, cloudAlias, Rerank:
		c.Backend = asked
	case "":
	default:
		return false
	}
	return true
}

// ListenAddress is where `ctxgate pruner` listens.
func (c Config) ListenAddress() string { return cmp.Or(c.Listen, defaultListen) }

// MaxRequestBytes bounds a request whose text may be pruned: a character can take twelve bytes, and there
// is a goal beside the text.
func (c Config) MaxRequestBytes() unit.Bytes { return unit.Bytes(12*c.MaxInputChars + 1<<20) }

// MissingAPIKey reports whether the backend needs a key and has none.
func (c Config) MissingAPIKey() bool { return c.backend() == DeepInfra && !c.DeepInfraKey.IsSet() }

func (c Config) backend() string {
	if c.Backend == cloudAlias {
		return DeepInfra
	}
	return c.Backend
}

func (c Config) deepInfraURL() string { return cmp.Or(c.DeepInfraURL, defaultDeepInfraURL) }

// Validate lists every problem; each text begins with the key it is about.
func (c Config) Validate() []error {
	var problems []error
	if c.Listen != "" {
		if err := front.CheckAddress(c.Listen); err != nil {
			problems = append(problems, fmt.Errorf("listen: %w", err))
		}
	}
	if err := checkURL(c.deepInfraURL()); err != nil {
		problems = append(problems, fmt.Errorf("deepinfra_url: %w", err))
	}
	switch {
	case c.RerankURL != "":
		if err := checkURL(c.RerankURL); err != nil {
			problems = append(problems, fmt.Errorf("rerank_url: %w", err))
		}
	case c.backend() == Rerank:
		problems = append(problems, errors.New(`rerank_url: is missing, and the backend "rerank" needs it`))
	}
	return problems
}

// checkURL does not quote an invalid URL: it can hold a secret.
func checkURL(s string) error {
	u, err := url.Parse(s)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return errors.New("is not a URL such as https://host/path")
	}
	return nil
}
