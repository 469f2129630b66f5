package auth

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/internal/secret"
)

// HMACKey is a key that signs requests.
type HMACKey struct {
	// The id of the key, which the signature names; it is no secret.
	KeyID string `key:"key_id"`

	// The key: at least 32 bytes, "env:NAME" or "file:PATH". While it is replaced, a second entry with another key_id
	// and the same subject holds the new one.
	Secret secret.Text `key:"secret"`

	// The tenant whose data the caller sees. Default "default".
	Tenant string `key:"tenant"`

	// Who the caller is within the tenant. Default: the key_id.
	Subject string `key:"subject"`

	// The caller's roles, for access rules. Default none.
	Roles []string `key:"roles"`
}

// minHMACSecret is the shortest key.
const minHMACSecret = 32

func (k HMACKey) problems() []error {
	var problems []error
	problem := func(format string, args ...any) { problems = append(problems, fmt.Errorf(format, args...)) }
	if err := checkName(k.KeyID); err != nil {
		problem("key_id: %w", err)
	} else if strings.ContainsAny(k.KeyID, "\",\\ =") {
		problem("key_id: must have no space, comma, quote or equals sign")
	}
	if text := k.Secret.Reveal(); !k.Secret.IsSet() || text != "" && len(text) < minHMACSecret {
		problem("secret: must have at least %d bytes", minHMACSecret)
	}
	for _, name := range []struct{ key, value string }{{"tenant", k.Tenant}, {"subject", k.Subject}} {
		if err := checkName(name.value); name.value != "" && err != nil {
			problem("%s: %w", name.key, err)
		}
	}
	for i, role := range k.Roles {
		if err := checkName(role); err != nil {
			problem("roles[%d]: %w", i, err)
		}
	}
	return problems
}

// A request is signed by the header
//
//	Authorization: HMAC-SHA256 key_id=ci,timestamp=1763280000,nonce=5f2c…,digest=<hex>,signature=<hex>
//
// where digest is the SHA-256 of the body, and signature the HMAC-SHA256 of these lines, joined by line feeds:
//
//	ctxgate-hmac-v1, the method, the path with its query as sent, timestamp, nonce, digest
const (
	signedScheme  = "HMAC-SHA256"
	signedVersion = "ctxgate-hmac-v1"
	signedWindow  = 5 * time.Minute // how far a timestamp may be from now
	minNonce      = 16
	maxNonce      = 64
	maxNonces     = 50_000 // of one key within the window
)

// signedKeys check signed requests. The nonces that were used survive a reload.
type signedKeys struct {
	keys    map[string]signedKey // by key id
	nonces  *nonces
	useOnce func(ctx context.Context, name string, lifetime time.Duration) (bool, error) // nil where there is only this process
}

type signedKey struct {
	secret []byte
	caller Caller
}

func newSignedKeys(cfg []HMACKey, d Deps) *signedKeys {
	s := &signedKeys{keys: map[string]signedKey{}, nonces: &nonces{}, useOnce: d.UseOnce}
	if before := d.Previous.signed; before != nil {
		s.nonces = before.nonces
	}
	for _, k := range cfg {
		text := k.Secret.Reveal()
		if len(text) < minHMACSecret {
			continue // not resolved: nobody can have it
		}
		s.keys[k.KeyID] = signedKey{[]byte(text), newCaller(identity{
			tenant: cmp.Or(k.Tenant, DefaultTenant), subject: cmp.Or(k.Subject, k.KeyID), credential: k.KeyID, roles: k.Roles, proof: signedProof(k.KeyID, text),
		})}
	}
	return s
}

// signedProof identifies a key, so that a caller can be checked again after a reload.
func signedProof(id, key string) [sha256.Size]byte {
	return sha256.Sum256([]byte(signedVersion + "\x00" + id + "\x00" + key))
}

// authenticateConnection identifies the sender of a request by what is no token: a signature, or the certificate of a
// client that sends no other credential.
func (a *Authenticator) authenticateConnection(r *http.Request) (who Caller, done bool, err error) {
	if isSigned(r.Header.Get("Authorization")) && len(a.signed.keys) > 0 {
		who, err = a.signed.authenticate(r, a.now())
		return who, true, err
	}
	if HasNoCredential(r) {
		return a.certificates.authenticate(r, a.now())
	}
	return Caller{}, false, nil
}

// revalidateConnection checks a caller of authenticateConnection again. ok is false if it is none.
func (a *Authenticator) revalidateConnection(c Caller) (today Caller, ok bool) {
	if c.id.proof == a.certificates.proof && a.certificates.ClientCA.IsSet() && !c.id.isExpired(a.now()) {
		return c, true
	}
	return a.signed.findProof(c.id.proof)
}

// isSigned says whether a header's value is a signature for this gateway.
func isSigned(value string) bool {
	scheme, _, _ := strings.Cut(value, " ")
	return strings.EqualFold(scheme, signedScheme)
}

var errSignature = fault.New(fault.Unauthorized, "the signature of the request is not valid")

// authenticate checks the signature of a request. The body is checked as it is read: the request fails if it is not the
// one that was signed.
func (s *signedKeys) authenticate(r *http.Request, now time.Time) (Caller, error) {
	params, err := parseSignature(r.Header.Values("Authorization"))
	if err != nil {
		return Caller{}, fault.Wrap(fault.Unauthorized, errSignature.Error(), err)
	}
	key, known := s.keys[params["key_id"]]
	lines := strings.Join([]string{signedVersion, r.Method, requestTarget(r), params["timestamp"], params["nonce"], params["digest"]}, "\n")
	mac := hmac.New(sha256.New, key.secret)
	_, _ = io.WriteString(mac, lines)
	given, err := hex.DecodeString(params["signature"])
	if err != nil || !hmac.Equal(given, mac.Sum(nil)) || !known {
		return Caller{}, errSignature
	}
	digest, err := hex.DecodeString(params["digest"])
	if err != nil || len(digest) != sha256.Size {
		return Caller{}, errSignature
	}
	seconds, err := strconv.ParseInt(params["timestamp"], 10, 64)
	if err != nil {
		return Caller{}, errSignature
	}
	at := time.Unix(seconds, 0)
	if at.Before(now.Add(-signedWindow)) || at.After(now.Add(signedWindow)) {
		return Caller{}, fault.New(fault.Unauthorized, "the timestamp of the signature is more than 5 minutes away from the gateway's clock")
	}
	if n := len(params["nonce"]); n < minNonce || n > maxNonce {
		return Caller{}, errSignature
	}
	if err := s.nonces.use(params["key_id"], params["nonce"], now); err != nil {
		return Caller{}, err
	}
	if err := s.useInAllReplicas(r.Context(), params["key_id"], params["nonce"]); err != nil {
		return Caller{}, err
	}
	body := &digestReader{body: r.Body, left: r.ContentLength, hash: sha256.New(), want: digest}
	if r.Body == nil || r.Body == http.NoBody {
		body.body, body.left = http.NoBody, 0
	}
	if body.left == 0 && !body.isRight() { // perhaps nobody reads it
		return Caller{}, errDigest
	}
	r.Body = body
	return key.caller, nil
}

// findProof returns the caller of a proof, if its key is still configured.
func (s *signedKeys) findProof(proof [sha256.Size]byte) (Caller, bool) {
	for _, key := range s.keys {
		if key.caller.id.proof == proof {
			return key.caller, true
		}
	}
	return Caller{}, false
}

// requestTarget is the path and query as the client sent them.
func requestTarget(r *http.Request) string { return cmp.Or(r.RequestURI, r.URL.RequestURI()) }

var errSignatureForm = errors.New("the Authorization header is not a signature")

// parseSignature reads the parameters of the one Authorization header. Each must be there once.
func parseSignature(headers []string) (map[string]string, error) {
	if len(headers) != 1 {
		return nil, errSignatureForm
	}
	_, text, _ := strings.Cut(headers[0], " ")
	params := map[string]string{}
	for part := range strings.SplitSeq(text, ",") {
		name, value, ok := strings.Cut(strings.TrimSpace(part), "=")
		value = strings.TrimSuffix(strings.TrimPrefix(value, `"`), `"`)
		if _, twice := params[name]; !ok || twice || value == "" || strings.ContainsAny(value, "\"\n\r") {
			return nil, errSignatureForm
		}
		params[name] = value
	}
	for _, name := range []string{"key_id", "timestamp", "nonce", "digest", "signature"} {
		if params[name] == "" {
			return nil, errSignatureForm
		}
	}
	return params, nil
}

// nonces are the nonces that were used lately, by key. A nonce is kept for as long as its signature would be accepted.
type nonces struct {
	mu    sync.Mutex
	byKey map[string]*keyNonces
}

// keyNonces are the nonces of one key, in two generations: a generation is dropped when all of its signatures are too
// old, which is at most twice the window after the first.
type keyNonces struct {
	now, before map[string]struct{}
	turns       time.Time // when the generations turn
}

// use notes a nonce. It is refused if it was used before, or if there are too many to be noted.
func (n *nonces) use(key, nonce string, now time.Time) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.byKey == nil {
		n.byKey = map[string]*keyNonces{}
	}
	k := n.byKey[key]
	if k == nil {
		k = &keyNonces{now: map[string]struct{}{}}
		n.byKey[key] = k
	}
	// All signatures of a generation expire at most two windows after its last one was noted.
	if now.After(k.turns) {
		k.before, k.now = k.now, map[string]struct{}{}
		if now.After(k.turns.Add(2 * signedWindow)) {
			k.before = nil
		}
		k.turns = now.Add(2 * signedWindow)
	}
	_, isNew := k.now[nonce]
	_, isOld := k.before[nonce]
	switch {
	case isNew || isOld:
		return errUsedBefore
	case len(k.now) >= maxNonces:
		err := fault.New(fault.RateLimited, "this key has signed too many requests within ten minutes")
		err.RetryAfter = k.turns.Sub(now)
		return err
	}
	k.now[nonce] = struct{}{}
	return nil
}

var errUsedBefore = fault.New(fault.Unauthorized, "this signature was used before")

// useInAllReplicas notes a nonce in the store that replicas share. Authentication fails closed: if the store does not
// answer, nobody knows whether another replica has accepted the signature, and it is refused.
func (s *signedKeys) useInAllReplicas(ctx context.Context, key, nonce string) error {
	if s.useOnce == nil {
		return nil
	}
	sum := sha256.Sum256([]byte(signedVersion + "\x00" + key + "\x00" + nonce))
	isFirst, err := s.useOnce(ctx, hex.EncodeToString(sum[:]), 2*signedWindow)
	if err != nil {
		refusal := fault.Wrap(fault.Unavailable, "whether this signature was used before cannot be found out now: sign the request again and retry", err)
		refusal.RetryAfter = time.Second
		return refusal
	}
	if !isFirst {
		return errUsedBefore
	}
	return nil
}

// digestReader checks that a body has the digest that was signed. If it has not, the read that completes it fails.
type digestReader struct {
	body io.ReadCloser
	left int64 // bytes that are still to come; negative if that is not known
	hash hash.Hash
	want []byte
}

var errDigest = fault.New(fault.Unauthorized, "the body is not the one that was signed")

func (d *digestReader) Read(p []byte) (int, error) {
	n, err := d.body.Read(p)
	_, _ = d.hash.Write(p[:n])
	knowsLength := d.left >= 0
	d.left -= int64(n)
	// Whoever knows the length may stop reading there, and never sees the end.
	isLast := errors.Is(err, io.EOF) || knowsLength && d.left <= 0
	if isLast && !d.isRight() {
		return 0, errDigest
	}
	return n, err
}

func (d *digestReader) isRight() bool {
	return subtle.ConstantTimeCompare(d.hash.Sum(nil), d.want) == 1
}

// Close closes the body.
func (d *digestReader) Close() error { return d.body.Close() }
