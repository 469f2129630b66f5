package auth

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/internal/gencache"
	"github.com/ctxgate/ctxgate/internal/secret"
)

// verifier checks the tokens of one identity provider. It is safe for concurrent use.
type verifier struct {
	cfg      OIDC
	source   string // names the configuration
	base     string // the gateway's own URL; "" if it is not configured
	now      func() time.Time
	keys     *keys
	parser   *jwt.Parser
	opaque   *introspector // nil: opaque tokens are refused
	failures failureLimit

	// By the hash of the whole token, so that one costs a signature check once.
	checked *gencache.Cache[[sha256.Size]byte, *verified]
	refused *gencache.Cache[[sha256.Size]byte, *keySet] // with the keys under which a token was refused
}

// The sizes of the caches.
const (
	maxChecked = 8 << 20 // bytes in each of two generations, estimated
	maxRefused = 32 << 10
)

// verified is a token that was found valid.
type verified struct {
	caller Caller
	keys   *keySet  // that it was checked with; nil for an opaque token
	paths  []string // at which it is valid; nil for everywhere
	denied error    // why it is not enough, though it is valid
	until  time.Time
}

// origin is where a token came from. It is empty for one that came in no HTTP header.
type origin struct{ host, path string }

// newVerifier makes a verifier. It takes over what an earlier one knows of the same provider; before may be nil.
func newVerifier(cfg OIDC, base string, now func() time.Time, before *verifier) *verifier {
	source := cfg.fingerprint(base)
	if before != nil && before.source == source && before.cfg.Introspection.ClientSecret.Reveal() == cfg.Introspection.ClientSecret.Reveal() {
		return before
	}
	p := newProvider(cfg)
	v := &verifier{
		cfg: cfg, source: source, base: base, now: now, keys: &keys{issuer: cfg.Issuer, now: now, fetch: p.fetchKeys}, failures: newFailureLimit(),
		checked: gencache.New[[sha256.Size]byte, *verified](maxChecked), refused: gencache.New[[sha256.Size]byte, *keySet](maxRefused),
		parser: jwt.NewParser(jwt.WithValidMethods(cfg.Algorithms), jwt.WithIssuer(cfg.Issuer), jwt.WithExpirationRequired(), jwt.WithIssuedAt(),
			jwt.WithLeeway(cfg.Leeway.D()), jwt.WithTimeFunc(now), jwt.WithStrictDecoding()),
	}
	if before != nil && before.cfg.Issuer == cfg.Issuer && before.cfg.JWKSURL == cfg.JWKSURL && before.cfg.AllowHTTP == cfg.AllowHTTP {
		v.keys = before.keys
	}
	if cfg.Introspection.ClientID != "" {
		v.opaque = newIntrospector(p, now)
	}
	return v
}

// fingerprint names everything in the configuration but the secret: a caller that was identified under another one may
// be somebody else today.
func (c OIDC) fingerprint(base string) string { return fmt.Sprintf("%q %#v", base, c) }

var (
	errInvalidToken = fault.New(fault.Unauthorized, "the token is not valid")
	errScope        = fault.New(fault.Forbidden, "the token does not have the scopes that are required")
	errTooManyBad   = &fault.Error{Kind: fault.Full, Public: "too many tokens that are not valid: try again later", RetryAfter: time.Second}
)

// authenticate returns the caller that a token identifies.
func (v *verifier) authenticate(ctx context.Context, token string, from origin) (Caller, error) {
	var got *verified
	var err error
	switch {
	case len(token) > maxToken:
		return Caller{}, errInvalidToken
	case strings.Count(token, ".") == 2:
		got, err = v.checkJWT(ctx, token, from.host)
	case v.opaque != nil:
		got, err = v.checkOpaque(ctx, token)
	default:
		return Caller{}, errInvalidToken
	}
	if err != nil {
		return Caller{}, err
	}
	if !got.isValidAt(from.path) {
		return Caller{}, errInvalidToken
	}
	if got.denied != nil {
		return Caller{}, got.denied
	}
	return got.caller, nil
}

// hash is the key of a token in the caches. It covers the whole token and what it was checked for (T22).
func (v *verifier) hash(token string) [sha256.Size]byte {
	return sha256.Sum256([]byte(v.cfg.Issuer + "\x00" + v.cfg.Audience + "\x00" + v.base + "\x00" + token))
}

func (v *verifier) checkJWT(ctx context.Context, token, host string) (*verified, error) {
	sum, set := v.hash(token), v.keys.current()
	if got, ok := v.checked.Get(sum); ok && got.keys == set && v.now().Before(got.until) {
		return got, nil
	}
	if under, ok := v.refused.Get(sum); ok && under == set {
		return nil, errInvalidToken
	}
	got, err := v.verify(ctx, token, host)
	switch {
	case err == nil:
		v.checked.Put(sum, got, 1024+4*len(token))
		return got, nil
	case errors.Is(err, errNoKeys):
		return nil, errNoKeys
	case errors.Is(err, errTooManyBad):
		return nil, errTooManyBad
	case !mayBecomeValid(err):
		v.refused.Put(sum, v.keys.current(), 1)
	}
	slog.DebugContext(ctx, "an access token was refused", "issuer", v.cfg.Issuer, "reason", fault.ClipTo(err.Error(), 300))
	return nil, fault.Wrap(fault.Unauthorized, errInvalidToken.Public, errors.Join(errInvalidToken, err))
}

// mayBecomeValid says whether a token that was refused could be valid later.
func mayBecomeValid(err error) bool {
	return errors.Is(err, errUnknownKey) || errors.Is(err, jwt.ErrTokenNotValidYet) || errors.Is(err, jwt.ErrTokenUsedBeforeIssued)
}

// verify checks a JWT: its form, its signature and its claims.
func (v *verifier) verify(ctx context.Context, token, host string) (*verified, error) {
	parts := strings.Split(token, ".")
	for _, part := range parts[:2] {
		text, err := base64.RawURLEncoding.Strict().DecodeString(part)
		if err != nil {
			return nil, errors.New("it is no base64url")
		}
		if _, err := strictObject(text); err != nil {
			return nil, err
		}
	}
	var set *keySet
	claims := jwt.MapClaims{}
	_, err := v.parser.ParseWithClaims(token, claims, func(t *jwt.Token) (any, error) {
		if issuer, err := claims.GetIssuer(); err != nil || issuer != v.cfg.Issuer {
			return nil, errors.New("it is of another issuer") // and the provider is not asked for its key
		}
		id, err := checkHeader(t.Header)
		if err != nil {
			return nil, err
		}
		public, from, err := v.keys.fetchKey(ctx, id, t.Method.Alg())
		if err != nil {
			return nil, err
		}
		if !v.failures.isBelow(host, v.now()) {
			return nil, errTooManyBad
		}
		set = from
		return public, nil
	})
	if err != nil {
		if set != nil && errors.Is(err, jwt.ErrTokenSignatureInvalid) {
			v.failures.countFailure(host, v.now())
		}
		return nil, fmt.Errorf("the access token: %w", err)
	}
	expires, _ := claims.GetExpirationTime() // it is there: the parser requires it
	got, err := v.accept(claims, token, expires.Add(v.cfg.Leeway.D()))
	if err != nil {
		return nil, err
	}
	got.keys = set
	return got, nil
}

// checkHeader returns the key id of a token. Keys and addresses of keys in the header (jwk, jku, x5u, x5c) are ignored.
func checkHeader(header map[string]any) (keyID string, err error) {
	if _, ok := header["crit"]; ok {
		return "", errors.New("its header has extensions that must be understood")
	}
	// Tokens for other purposes, such as a logout, are signed with the same keys (RFC 8725, 3.11).
	if typ, ok := header["typ"]; ok {
		name, _ := typ.(string)
		if name = strings.TrimPrefix(strings.ToLower(name), "application/"); name != "jwt" && name != "at+jwt" {
			return "", errors.New("it is no access token")
		}
	}
	id, ok := header["kid"]
	if !ok {
		return "", nil
	}
	if keyID, _ = id.(string); keyID == "" {
		return "", errors.New("its kid is no text")
	}
	return keyID, nil
}

// accept turns the claims of a token that its issuer vouches for into a caller.
func (v *verifier) accept(claims jwt.MapClaims, token string, until time.Time) (*verified, error) {
	id, err := v.identityOf(claims)
	if err != nil {
		return nil, err
	}
	audience, err := claims.GetAudience()
	if err != nil {
		return nil, fmt.Errorf("the claim aud: %w", err)
	}
	got := &verified{until: until}
	if !v.isForGateway(audience) {
		if got.paths = v.pathsOf(audience); got.paths == nil {
			return nil, errors.New("it is for another audience")
		}
	}
	for _, scope := range v.cfg.Scopes {
		if !slices.Contains(scopesOf(claims), scope) {
			got.denied = errScope
		}
	}
	text := secret.Literal(token)
	id.proof, id.expires, id.accessToken, id.claims, id.source = v.hash(token), until, &text, claims, v.source
	got.caller = newCaller(id)
	return got, nil
}

// isForGateway says whether an audience is the whole gateway: the configured one, or its URL (RFC 8707).
func (v *verifier) isForGateway(audience []string) bool {
	for _, aud := range audience {
		if aud == v.cfg.Audience && aud != "" || v.base != "" && (aud == v.base || aud == v.base+"/" || aud == v.base+mcpPath) {
			return true
		}
	}
	return false
}

// mcpPath is the MCP endpoint of all servers; those of single servers are below it.
const mcpPath = "/mcp"

// pathsOf are the paths of the endpoints of single servers that are in an audience.
func (v *verifier) pathsOf(audience []string) []string {
	var paths []string
	for _, aud := range audience {
		if path, ok := strings.CutPrefix(aud, v.base); ok && v.base != "" && strings.HasPrefix(path, mcpPath+"/") {
			paths = append(paths, path)
		}
	}
	return paths
}

func (g *verified) isValidAt(path string) bool {
	return g.paths == nil || slices.Contains(g.paths, path)
}

// isOwn says whether a text is a token of this provider, valid or not, without asking it.
func (v *verifier) isOwn(token string) bool {
	if strings.Count(token, ".") != 2 {
		return v.opaque != nil && v.opaque.knows(v.hash(token))
	}
	claims := jwt.MapClaims{}
	_, _, err := v.parser.ParseUnverified(token, claims)
	issuer, _ := claims.GetIssuer()
	return err == nil && issuer == v.cfg.Issuer
}

// isStillValid checks a caller again.
func (v *verifier) isStillValid(c Caller) bool {
	return c.id.source == v.source && !c.id.isExpired(v.now())
}
