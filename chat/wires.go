package chat

import (
	"errors"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/front"
	"github.com/ctxgate/ctxgate/internal/retryafter"
	"github.com/ctxgate/ctxgate/llm"
)

// endpoint is a path that clients POST to, and the wire shape of its requests.
type endpoint struct {
	llm.Endpoint
	codec     llm.Codec
	pathModel string // the model that the path names; "": the body names it
}

// wireTable holds the wire shapes that are served.
type wireTable struct {
	codecs    []llm.Codec
	endpoints map[string]endpoint // by path
	patterns  []endpoint          // whose path has the model in it
	versions  []string            // the first segments of the APIs' paths
	protocol  []string            // keys that decide how a request is handled; in other letters they are refused
}

func newWireTable(codecs []llm.Codec) *wireTable {
	t := &wireTable{codecs: codecs, endpoints: map[string]endpoint{}, protocol: []string{"model", "stream"}}
	for _, codec := range codecs {
		wire := codec.Wire()
		t.protocol = append(t.protocol, wire.MessagesKey)
		t.addVersion(wire.Vendor.Version())
		for _, e := range wire.Endpoints {
			if e.Version != "" {
				t.addVersion(e.Version)
			}
			if strings.Contains(e.Path, llm.ModelInPath) {
				t.patterns = append(t.patterns, endpoint{Endpoint: e, codec: codec})
				continue
			}
			t.endpoints[e.Path] = endpoint{Endpoint: e, codec: codec}
		}
	}
	return t
}

func (t *wireTable) addVersion(v string) {
	if !slices.Contains(t.versions, v) {
		t.versions = append(t.versions, v)
	}
}

// find returns the endpoint of a path. Where the path names the model, UpstreamPath names it too.
func (t *wireTable) find(path string) (endpoint, bool) {
	if e, ok := t.endpoints[path]; ok {
		return e, true
	}
	for _, e := range t.patterns {
		before, after, _ := strings.Cut(e.Path, llm.ModelInPath)
		model, ok := strings.CutPrefix(path, before)
		if ok {
			model, ok = strings.CutSuffix(model, after)
		}
		if ok && model != "" && !strings.Contains(model, "/") {
			e.pathModel = model
			e.UpstreamPath = strings.Replace(e.UpstreamPath, llm.ModelInPath, url.PathEscape(model), 1)
			return e, true
		}
	}
	return endpoint{}, false
}

// patternPrefixes are the beginnings of the paths that name the model.
func (t *wireTable) patternPrefixes() []string {
	var out []string
	for _, e := range t.patterns {
		if before, _, _ := strings.Cut(e.Path, llm.ModelInPath); !slices.Contains(out, before) {
			out = append(out, before)
		}
	}
	return out
}

// vendor is the API family that a provider's kind names; nil for none.
func (t *wireTable) vendor(kind string) llm.Vendor {
	for _, codec := range t.codecs {
		if v := codec.Wire().Vendor; v.Kind() == kind {
			return v
		}
	}
	return nil
}

// vendorOf is the API family of a client: that of the path or, where several have the path, the one that
// claims the request.
func (t *wireTable) vendorOf(r *http.Request) llm.Vendor {
	if e, ok := t.find(r.URL.Path); ok {
		return e.codec.Wire().Vendor
	}
	for _, codec := range t.codecs {
		if v := codec.Wire().Vendor; v.Claims(r) {
			return v
		}
	}
	return t.codecs[0].Wire().Vendor
}

// refuse answers a request that got no reply of a provider, in the form of the API that the client
// speaks.
func (t *wireTable) refuse(w http.ResponseWriter, r *http.Request, err error) {
	t.refuseWith(w, r, statusOf(w, err), err)
}

func (t *wireTable) refuseWith(w http.ResponseWriter, r *http.Request, status int, err error) {
	kind := fault.KindOf(err)
	front.AddLogAttrs(r.Context(), slog.String("fault", kind.String()), slog.String("error", fault.Clip(err.Error())))
	failure := llm.Failure{Status: status, Kind: kind, Text: fault.PublicOf(err)}
	if kind == fault.OverBudget {
		failure.Renews = time.Now().Add(fault.RetryAfterOf(err)).Round(time.Second)
		w.Header().Set("X-Should-Retry", "false") // SDKs would otherwise repeat a request that has 429
	}
	body := t.vendorOf(r).AppendError(nil, failure)
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	retryafter.Set(w.Header(), fault.RetryAfterOf(err))
	w.WriteHeader(status)
	_, _ = w.Write(body)
}

// serves says whether a path belongs to one of the APIs.
func (t *wireTable) serves(path string) bool {
	_, ok := t.endpoints[path]
	return ok || slices.ContainsFunc(t.versions, func(v string) bool { return strings.HasPrefix(path, "/"+v+"/") })
}

// status is the HTTP status of a failure of ours, as SDKs of the providers expect it.
func status(k fault.Kind) int {
	switch k {
	case fault.Internal:
		return http.StatusInternalServerError
	case fault.Timeout:
		return http.StatusGatewayTimeout
	case fault.Syntax, fault.InvalidRequest, fault.BadParams, fault.NoMethod, fault.Unauthorized, fault.Forbidden, fault.NotFound,
		fault.UnknownHandle, fault.TooLarge, fault.Stalled, fault.RateLimited, fault.OverBudget, fault.Unavailable, fault.BadReply, fault.Full, fault.Canceled:
	}
	return front.HTTPStatus(k)
}

// statusOf is the HTTP status of a refusal. It may set headers that belong to it.
func statusOf(w http.ResponseWriter, err error) int {
	if errors.Is(err, errCoding) {
		w.Header().Set("Accept-Encoding", accepted)
		return http.StatusUnsupportedMediaType
	}
	return status(fault.KindOf(err))
}
