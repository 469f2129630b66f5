package auth

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"

	"github.com/ctxgate/ctxgate/fault"
)

// MetadataPath is where clients learn which identity provider issues tokens for the gateway (RFC 9728). The path of a
// resource follows it.
const MetadataPath = "/.well-known/oauth-protected-resource"

// protectedResource is the metadata of the gateway.
type protectedResource struct {
	Resource             string   `json:"resource"`
	AuthorizationServers []string `json:"authorization_servers"`
	ScopesSupported      []string `json:"scopes_supported,omitempty"`
	BearerMethods        []string `json:"bearer_methods_supported"`
	ResourceName         string   `json:"resource_name"`
}

// ServeMetadata answers requests for MetadataPath and the paths below it. It needs no credential, and says nothing that
// a refused request does not.
func (a *Authenticator) ServeMetadata(w http.ResponseWriter, r *http.Request) {
	path, ok := resourcePath(strings.TrimPrefix(r.URL.Path, MetadataPath))
	if a.oidc == nil || !ok {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store") // without public_url it depends on the request
	_ = json.NewEncoder(w).Encode(protectedResource{
		Resource: a.baseOf(r) + path, AuthorizationServers: []string{a.oidc.cfg.Issuer}, ScopesSupported: a.oidc.cfg.Scopes,
		BearerMethods: []string{"header"}, ResourceName: "ctxgate",
	})
}

// resourcePath is the path of the resource that a request is for: the MCP endpoint, that of one server, or "" for the
// whole gateway. It is false for a path that is none of these.
func resourcePath(path string) (string, bool) {
	server, ok := strings.CutPrefix(path, mcpPath+"/")
	if path == "" || path == mcpPath || ok && server != "" && !strings.Contains(server, "/") {
		return path, true
	}
	return "", false
}

// baseOf is the URL of the gateway for the sender of a request.
func (a *Authenticator) baseOf(r *http.Request) string {
	switch {
	case a.base != "":
		return a.base
	case r.TLS != nil:
		return "https://" + r.Host
	}
	return "http://" + r.Host
}

// Challenge is the WWW-Authenticate header of a reply that refuses a request for lack of a valid credential: where to
// get one, and for which scopes.
func (a *Authenticator) Challenge(r *http.Request, err error) string {
	if a.oidc == nil {
		return "Bearer"
	}
	path, _ := resourcePath(r.URL.Path)
	params := []string{"resource_metadata=" + quoteParam(a.baseOf(r)+MetadataPath+path)}
	if scopes := a.oidc.cfg.Scopes; len(scopes) > 0 {
		params = append(params, "scope="+quoteParam(strings.Join(scopes, " ")))
	}
	switch {
	case errors.Is(err, errScope):
		params = append(params, `error="insufficient_scope"`)
	case errors.Is(err, errInvalidToken):
		params = append(params, `error="invalid_token"`, "error_description="+quoteParam(fault.PublicOf(err)))
	}
	return "Bearer " + strings.Join(params, ", ")
}

// quoteParam quotes a parameter of a header. What cannot be in one is left out.
func quoteParam(text string) string {
	return `"` + strings.Map(func(r rune) rune {
		if r < ' ' || r == '"' || r == '\\' || r > '~' {
			return -1
		}
		return r
	}, text) + `"`
}
