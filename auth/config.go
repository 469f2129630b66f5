package auth

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/ctxgate/ctxgate/internal/secret"
)

// Config says who may call. If it names no credential at all, everybody who can reach a listener may call.
type Config struct {
	// The token every client must send, as "Authorization: Bearer …" or in params.proxy.authToken of
	// each message; at the LLM endpoint also as x-api-key, or as X-Ctxgate-Token beside a provider's own
	// key. Whoever sends it is the subject "token" of the tenant "default". Default empty: if nobody else is named
	// either, everybody who can reach the listener may call. Requests to ctxgate stdio also
	// carry it in params.proxy.authToken, unless the process was started with it in the variable
	// CTXGATE_TOKEN or AUTH_TOKEN; in a client's configuration: "env": {"CTXGATE_TOKEN": "…"}.
	Token secret.Text `key:"auth_token" literal:"ok"`

	// Named callers and their tokens, sent like auth_token.
	Tokens []Token `key:"tokens"`

	// Keys that sign requests.
	HMAC []HMACKey `key:"hmac"`

	// TLS on the main listener, and certificates of clients.
	TLS TLS `key:"tls"`

	// The identity provider whose access tokens are accepted.
	OIDC OIDC `key:"oidc"`
}

// Token is the token of a named caller.
type Token struct {
	// The name of the token, for logs and limits; it is no secret. Tokens of one caller may share it: while a token is
	// replaced, the old and the new one are both valid.
	Name string `key:"name"`

	// The token itself: "env:NAME" or "file:PATH". Make one with `openssl rand -hex 32`; one of less than 16 bytes
	// gives a warning. Either this or sha256 is required.
	Token secret.Text `key:"token"`

	// The SHA-256 of the token in hexadecimal, as `printf %s "$TOKEN" | sha256sum` prints it: the configuration then
	// holds no secret, but the token must be a random one.
	SHA256 string `key:"sha256"`

	// The tenant whose data the caller sees. Default "default".
	Tenant string `key:"tenant"`

	// Who the caller is within the tenant. Default: the name.
	Subject string `key:"subject"`

	// The caller's roles, for access rules. Default none.
	Roles []string `key:"roles"`

	// When the token expires: a day, "2027-01-31" (it is valid until that day begins, UTC), or a time,
	// "2027-01-31T12:00:00Z". Default empty: never.
	Expires string `key:"expires"`
}

// IsRequired says whether callers need a credential at all.
func (c Config) IsRequired() bool {
	return c.Token.IsSet() || len(c.Tokens) > 0 || len(c.HMAC) > 0 || c.TLS.ClientCA.IsSet() || c.OIDC.IsEnabled()
}

// Validate lists every problem; each text begins with the key it is about.
func (c Config) Validate() []error {
	var problems []error
	if isDefaultSecret(c.Token.Reveal()) {
		problems = append(problems, errors.New("auth_token: is one that everybody knows: make a random one, for example with openssl rand -hex 32"))
	}
	for i, t := range c.Tokens {
		for _, err := range t.problems() {
			problems = append(problems, fmt.Errorf("tokens[%d].%w", i, err))
		}
		if j := slices.IndexFunc(c.Tokens[:i], func(other Token) bool { return other.Name == t.Name }); j >= 0 && !t.isSameCaller(c.Tokens[j]) {
			problems = append(problems, fmt.Errorf("tokens[%d].name: tokens[%d] has the same name and another tenant, subject or roles", i, j))
		}
	}
	for i, k := range c.HMAC {
		for _, err := range k.problems() {
			problems = append(problems, fmt.Errorf("hmac[%d].%w", i, err))
		}
		if slices.ContainsFunc(c.HMAC[:i], func(other HMACKey) bool { return other.KeyID == k.KeyID }) {
			problems = append(problems, fmt.Errorf("hmac[%d].key_id: is used twice", i))
		}
	}
	for _, err := range c.TLS.problems() {
		problems = append(problems, fmt.Errorf("tls.%w", err))
	}
	for _, err := range c.OIDC.Validate() {
		problems = append(problems, fmt.Errorf("oidc.%w", err))
	}
	return append(problems, c.validateUnique()...)
}

// validateUnique refuses a token of two callers: which one sent it could not be told.
func (c Config) validateUnique() []error {
	var problems []error
	owners := map[[sha256.Size]byte]string{}
	if t := c.Token.Reveal(); t != "" {
		owners[sha256.Sum256([]byte(t))] = "auth_token"
	}
	for i, t := range c.Tokens {
		sum, ok := t.hash()
		if !ok {
			continue
		}
		key := fmt.Sprintf("tokens[%d]", i)
		if owner := owners[sum]; owner != "" {
			problems = append(problems, fmt.Errorf("%s: has the same token as %s", key, owner))
		}
		owners[sum] = key
	}
	return problems
}

func (t Token) problems() []error {
	var problems []error
	problem := func(format string, args ...any) { problems = append(problems, fmt.Errorf(format, args...)) }
	if err := checkName(t.Name); err != nil {
		problem("name: %w", err)
	}
	if t.Token.IsSet() == (t.SHA256 != "") {
		problem("token: set either token or sha256")
	}
	if isDefaultSecret(t.Token.Reveal()) {
		problem("token: is one that everybody knows: make a random one, for example with openssl rand -hex 32")
	}
	if _, ok := parseHash(t.SHA256); t.SHA256 != "" && !ok {
		problem("sha256: must be 64 hexadecimal digits")
	}
	for _, name := range []struct{ key, value string }{{"tenant", t.Tenant}, {"subject", t.Subject}} {
		if err := checkName(name.value); name.value != "" && err != nil {
			problem("%s: %w", name.key, err)
		}
	}
	for i, role := range t.Roles {
		if err := checkName(role); err != nil {
			problem("roles[%d]: %w", i, err)
		}
	}
	if _, err := parseExpiry(t.Expires); err != nil {
		problem("expires: %w", err)
	}
	return problems
}

// isSameCaller says whether two tokens identify one caller.
func (t Token) isSameCaller(other Token) bool {
	a, b := t.identity(), other.identity()
	return a.tenant == b.tenant && a.subject == b.subject && slices.Equal(a.roles, b.roles)
}

// hash is the SHA-256 of the token; false if the token is not resolved yet.
func (t Token) hash() (sum [sha256.Size]byte, ok bool) {
	if text := t.Token.Reveal(); text != "" {
		return sha256.Sum256([]byte(text)), true
	}
	return parseHash(t.SHA256)
}

func parseHash(text string) (sum [sha256.Size]byte, ok bool) {
	b, err := hex.DecodeString(text)
	if err != nil || len(b) != len(sum) {
		return sum, false
	}
	return [sha256.Size]byte(b), true
}

// parseExpiry reads a day or a time; the zero time for an empty text.
func parseExpiry(text string) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if day, err := time.Parse(time.DateOnly, text); err == nil {
		return day, nil
	}
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return time.Time{}, fmt.Errorf("%.40q is not a day such as 2027-01-31 or a time such as 2027-01-31T12:00:00Z", text)
	}
	return at, nil
}

const maxName = 256

// checkName refuses what cannot be the name of a tenant, a subject, a role or a token: what is empty, too long, or not
// printable text.
func checkName(name string) error {
	if name == "" || len(name) > maxName || !utf8.ValidString(name) || strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return fmt.Errorf("must be 1 to %d bytes of printable text", maxName)
	}
	return nil
}

// minTokenBytes is the length below which a token may be guessed.
const minTokenBytes = 16

// Warnings are what an operator should know of a valid configuration whose secrets are resolved.
func (c Config) Warnings() []string {
	var out []string
	for i, t := range c.Tokens {
		if text := t.Token.Reveal(); text != "" && len(text) < minTokenBytes {
			out = append(out, fmt.Sprintf("tokens[%d].token: has less than %d bytes and may be guessed: make one with openssl rand -hex 32", i, minTokenBytes))
		}
	}
	return out
}

// defaultSecrets are what examples and images come with (T24).
var defaultSecrets = []string{
	"admin", "api-key", "apikey", "bearer", "change-me", "change_me", "changeit", "changeme", "default", "example", "letmein",
	"password", "secret", "secret-api-key", "test", "token", "your-secret", "your-token", "your-token-here", "xxx",
}

func isDefaultSecret(text string) bool { return slices.Contains(defaultSecrets, strings.ToLower(text)) }
