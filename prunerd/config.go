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
	DeepInfra = "deepinfra" // a reranker in DeepInfra's cloud has a say
	Rerank    = "rerank"    // a reranker of one's own has
)

// cloud is another name for DeepInfra.
const cloud = "cloud"

const (
	defaultListen       = "127.0.0.1:8006"
	defaultDeepInfraURL = "https://api.deepinfra.com/v1/inference/Qwen/Qwen3-Reranker-0.6B"
)

// Config is the pruner's listener, engine and limits.
type Config struct {
	// The pruner's address. MCP_PRUNER_HOST and MCP_PRUNER_PORT set its parts. Default
	// "127.0.0.1:8006"; empty means none in `ctxgate serve`, and the default in `ctxgate pruner`.
	Listen string `key:"listen" reload:"restart"`

	// Offer the pruner's tools as a server of the gateway itself too, under the id "pruner". A
	// configured server of that id takes its place. Default true.
	Builtin bool `key:"builtin" reload:"restart"`

	// Who says which lines matter: "heuristic" (the local engine alone; nothing leaves the
	// machine), "deepinfra" or its alias "cloud" (texts go to DeepInfra, with the key in the
	// variable DEEPINFRA_API_KEY) or "rerank" (texts go to rerank_url). Default "heuristic". The
	// variable KIMI_PRUNING_BACKEND wins over the file; a value of it that is no backend is as
	// good as none.
	Backend string `key:"backend" oneof:"heuristic,deepinfra,cloud,rerank"`

	// The longest text that is pruned, in characters; a longer one comes back whole. Default
	// 2000000: some 600000 tokens, more than most models can be shown at all, and still read in
	// well under the second and a half that callers give.
	MaxInputChars int `key:"max_input_chars" min:"1" max:"100000000" env:"MCP_PRUNER_MAX_INPUT_CHARS"`

	// How long what the pruner leaves out can be read back after it was last shown, in seconds.
	// Default 0: as long as state.ttl says.
	PruneIDTTL int `key:"prune_id_ttl_s" min:"0" max:"3153600000" env:"MCP_PRUNER_PRUNE_ID_TTL_S" reload:"restart"`

	// How many texts are read at once; others wait for their turn within their own time limit.
	// Default 0: as many as there are cores.
	MaxRuns int `key:"max_runs" min:"0" reload:"restart"`

	// Where DeepInfra's reranker is. Default empty: its Qwen3-Reranker-0.6B.
	DeepInfraURL string `key:"deepinfra_url" env:"DEEPINFRA_ENDPOINT_URL"`

	// The longest DeepInfra may take, in milliseconds; a call's own timeout_ms binds it too.
	// Default 20000.
	TimeoutMS int `key:"deepinfra_timeout_ms" min:"1" max:"3600000" env:"DEEPINFRA_TIMEOUT_MS"`

	// The most parts of a text that DeepInfra is asked about, each of 8 to 20 lines. Default 64.
	MaxDocs int `key:"deepinfra_max_docs" min:"1" max:"4096" env:"DEEPINFRA_MAX_DOCS"`

	// How long a reranker's scores are kept, in seconds. Default 30; 0 keeps none.
	CacheTTL int `key:"cache_ttl_s" min:"0" max:"3153600000" env:"MCP_PRUNER_CACHE_TTL_S"`

	// How many answers of a reranker are kept. Default 256; 0 keeps none.
	CacheMax int `key:"cache_max_entries" min:"0" env:"MCP_PRUNER_CACHE_MAX_ITEMS,MCP_PRUNER_CACHE_MAX_ENTRIES"`

	// Where the reranker of the backend "rerank" is, path included: "http://127.0.0.1:8080/rerank".
	// Default empty; that backend needs it.
	RerankURL string `key:"rerank_url"`

	// How that reranker is spoken to: "jina" (Jina, Cohere, llama.cpp, vLLM) or "tei" (Hugging
	// Face's text-embeddings-inference). Default "jina".
	RerankShape string `key:"rerank_shape" oneof:"jina,tei"`

	// The model to name to that reranker, where it has several. Default empty: none is named.
	RerankModel string `key:"rerank_model"`

	// The key of that reranker. Default empty: none is sent.
	RerankKey secret.Text `key:"rerank_key"`

	// The longest that reranker may take, in milliseconds; a call's own timeout_ms binds it too.
	// Default 20000.
	RerankTimeoutMS int `key:"rerank_timeout_ms" min:"1" max:"3600000"`

	// The most parts of a text that reranker is asked about, each of 8 to 20 lines. Default 64.
	RerankMaxDocs int `key:"rerank_max_docs" min:"1" max:"4096"`

	// Variables that stand for no key of a file.

	Host         string      `key:"host,env" env:"MCP_PRUNER_HOST"`
	Port         *int        `key:"port,env" env:"MCP_PRUNER_PORT" min:"0" max:"65535"`
	Asked        string      `key:"kimi_pruning_backend,env" env:"KIMI_PRUNING_BACKEND"`
	DeepInfraKey secret.Text `key:"deepinfra_api_key,env" env:"DEEPINFRA_API_KEY"`
}

// Default is the configuration of an empty file.
func Default() Config {
	return Config{
		Listen: defaultListen, Builtin: true, Backend: Heuristic, MaxInputChars: 2_000_000,
		TimeoutMS: 20_000, MaxDocs: 64, CacheTTL: 30, CacheMax: 256,
		RerankShape: rerank.Jina, RerankTimeoutMS: 20_000, RerankMaxDocs: 64,
	}
}

// ComposeListen puts the host and the port that the environment names into the address.
func (c *Config) ComposeListen() {
	if c.Host == "" && c.Port == nil {
		return
	}
	host, port, err := net.SplitHostPort(cmp.Or(c.Listen, defaultListen))
	if err != nil {
		return // it is told that the address is none
	}
	host = cmp.Or(c.Host, host)
	if c.Port != nil {
		port = strconv.Itoa(*c.Port)
	}
	c.Listen, c.Host, c.Port = net.JoinHostPort(host, port), "", nil
}

// ChooseBackend puts the backend that the environment names in the place of the file's. It says
// whether the name is one that it knows: another chooses nothing.
func (c *Config) ChooseBackend() (known bool) {
	asked := strings.ToLower(strings.TrimSpace(c.Asked))
	c.Asked = ""
	switch asked {
	case Heuristic, DeepInfra, cloud, Rerank:
		c.Backend = asked
	case "":
	default:
		return false
	}
	return true
}

// Address is where `ctxgate pruner` listens.
func (c Config) Address() string { return cmp.Or(c.Listen, defaultListen) }

// MaxRequestBytes is the largest body of a request whose text may be pruned: a character can take
// twelve bytes, and there is a goal beside the text.
func (c Config) MaxRequestBytes() unit.Bytes { return unit.Bytes(12*c.MaxInputChars + 1<<20) }

// LacksKey says that the backend cannot be used for want of a key.
func (c Config) LacksKey() bool { return c.backend() == DeepInfra && !c.DeepInfraKey.IsSet() }

func (c Config) backend() string {
	if c.Backend == cloud {
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

// checkURL does not repeat what it refuses: a URL can hold a secret too.
func checkURL(s string) error {
	u, err := url.Parse(s)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return errors.New("is not a URL such as https://host/path")
	}
	return nil
}
