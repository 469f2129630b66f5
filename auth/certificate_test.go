package auth

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/internal/secret"
)

// issueCertificate returns a certificate and its key in PEM, signed by an authority; nil for itself.
func issueCertificate(t *testing.T, template *x509.Certificate, by *tls.Certificate) (certPEM, keyPEM string, pair tls.Certificate) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template.SerialNumber = big.NewInt(time.Now().UnixNano())
	if template.NotAfter.IsZero() {
		template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	}
	parent, signer := template, any(key)
	if by != nil {
		parent, signer = by.Leaf, by.PrivateKey
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		t.Fatal(err)
	}
	rawKey, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	certPEM = string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	keyPEM = string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: rawKey}))
	if pair, err = tls.X509KeyPair([]byte(certPEM), []byte(keyPEM)); err != nil {
		t.Fatal(err)
	}
	return certPEM, keyPEM, pair
}

func authority() *x509.Certificate {
	return &x509.Certificate{Subject: pkix.Name{CommonName: "authority"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
}

func clientTemplate(change func(*x509.Certificate)) *x509.Certificate {
	c := &x509.Certificate{ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}, Subject: pkix.Name{Organization: []string{"acme"}}}
	c.URIs = []*url.URL{{Scheme: "spiffe", Host: "trust.example", Path: "/robot"}}
	if change != nil {
		change(c)
	}
	return c
}

// S15: certificates of another authority, expired ones and none are refused by the listener; the SAN names the caller.
func TestS15ClientCertificates(t *testing.T) {
	caPEM, _, ca := issueCertificate(t, authority(), nil)
	_, _, otherCA := issueCertificate(t, authority(), nil)
	serverCert, serverKey, _ := issueCertificate(t, &x509.Certificate{DNSNames: []string{"localhost"}}, &ca)
	base := TLS{Cert: secret.Literal(serverCert), Key: secret.Literal(serverKey), ClientCA: secret.Literal(caPEM)}
	expired := clientTemplate(func(c *x509.Certificate) {
		c.NotBefore, c.NotAfter = time.Now().Add(-2*time.Hour), time.Now().Add(-time.Hour)
	})
	for name, tt := range map[string]struct {
		cfg    func(*TLS)
		client *x509.Certificate // nil for none
		by     *tls.Certificate
		token  string
		want   string // tenant/issuer/subject; "" refused
	}{
		"a URI":                       {client: clientTemplate(nil), by: &ca, want: "default/certificate/spiffe://trust.example/robot"},
		"an e-mail address":           {client: clientTemplate(func(c *x509.Certificate) { c.URIs, c.EmailAddresses = nil, []string{"ann@example.com"} }), by: &ca, want: "default/certificate/ann@example.com"},
		"a DNS name":                  {client: clientTemplate(func(c *x509.Certificate) { c.URIs, c.DNSNames = nil, []string{"ci.example"} }), by: &ca, want: "default/certificate/ci.example"},
		"no SAN":                      {client: clientTemplate(func(c *x509.Certificate) { c.URIs = nil }), by: &ca},
		"a fixed tenant":              {cfg: func(c *TLS) { c.ClientTenant = "t" }, client: clientTemplate(nil), by: &ca, want: "t/certificate/spiffe://trust.example/robot"},
		"tenant by organization":      {cfg: func(c *TLS) { c.ClientTenantFrom = "organization" }, client: clientTemplate(nil), by: &ca, want: "acme/certificate/spiffe://trust.example/robot"},
		"no organization":             {cfg: func(c *TLS) { c.ClientTenantFrom = "organization" }, client: clientTemplate(func(c *x509.Certificate) { c.Subject = pkix.Name{} }), by: &ca},
		"tenant by host":              {cfg: func(c *TLS) { c.ClientTenantFrom = "uri-host" }, client: clientTemplate(nil), by: &ca, want: "trust.example/certificate/spiffe://trust.example/robot"},
		"no host":                     {cfg: func(c *TLS) { c.ClientTenantFrom = "uri-host" }, client: clientTemplate(func(c *x509.Certificate) { c.URIs, c.DNSNames = nil, []string{"a.b"} }), by: &ca},
		"another authority":           {client: clientTemplate(nil), by: &otherCA},
		"expired":                     {client: expired, by: &ca},
		"none":                        {},
		"none, and a token":           {token: "a-token-of-the-config"},
		"none, optional":              {cfg: func(c *TLS) { c.ClientAuth = "optional" }},
		"none, optional, and a token": {cfg: func(c *TLS) { c.ClientAuth = "optional" }, token: "a-token-of-the-config", want: "default//token"},
		"another authority, optional": {cfg: func(c *TLS) { c.ClientAuth = "optional" }, client: clientTemplate(nil), by: &otherCA, token: "a-token-of-the-config"},
		"both":                        {client: clientTemplate(nil), by: &ca, token: "a-token-of-the-config", want: "default//token"},
		"a wrong token":               {client: clientTemplate(nil), by: &ca, token: "wrong"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := base
			cfg.ClientRoles = []string{"machine"}
			if tt.cfg != nil {
				tt.cfg(&cfg)
			}
			a := New(Config{TLS: cfg, Token: secret.Literal("a-token-of-the-config")})
			got := ""
			srv := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				who, err := a.Authenticate(r)
				if err != nil {
					if fault.KindOf(err) != fault.Unauthorized || who != (Caller{}) {
						t.Errorf("%v, %v", who, err)
					}
					return
				}
				got = who.Tenant() + "/" + who.Issuer() + "/" + who.Subject()
				if who.Issuer() == certificateIssuer {
					checkCertificateCaller(t, a, cfg, who)
				}
			}))
			var err error
			if srv.TLS, err = NewServerTLS(cfg); err != nil {
				t.Fatal(err)
			}
			srv.StartTLS()
			defer srv.Close()
			client := srv.Client()
			transport := client.Transport.(*http.Transport)
			transport.TLSClientConfig.InsecureSkipVerify = true //nolint:gosec // the client's side is what is tested
			if tt.client != nil {
				_, _, pair := issueCertificate(t, tt.client, tt.by)
				transport.TLSClientConfig.Certificates = []tls.Certificate{pair}
			}
			req, _ := http.NewRequest(http.MethodGet, srv.URL, nil)
			if tt.token != "" {
				req.Header.Set("Authorization", "Bearer "+tt.token)
			}
			if resp, err := client.Do(req); err == nil {
				_ = resp.Body.Close()
			}
			if got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

func checkCertificateCaller(t *testing.T, a *Authenticator, cfg TLS, who Caller) {
	t.Helper()
	if !who.HasRole("machine") || who.Expires().Before(time.Now()) || who.Credential() == "" {
		t.Errorf("%+v", who.id)
	}
	if err := a.Revalidate(who); err != nil {
		t.Error(err)
	}
	later := *a
	later.now = func() time.Time { return who.Expires().Add(time.Second) }
	if later.Revalidate(who) == nil {
		t.Error("an expired certificate is still valid")
	}
	cfg.ClientCA = secret.Literal("others")
	if New(Config{TLS: cfg}).Revalidate(who) == nil {
		t.Error("a certificate of a former authority is still valid")
	}
	if New(Config{Token: secret.Literal("a-token-of-the-config")}).Revalidate(who) == nil {
		t.Error("a certificate is valid without mutual TLS")
	}
}

func TestTLSIsValidated(t *testing.T) {
	certPEM, keyPEM, _ := issueCertificate(t, authority(), nil)
	_, otherKey, _ := issueCertificate(t, authority(), nil)
	right := TLS{Cert: secret.Literal(certPEM), Key: secret.Literal(keyPEM)}
	if problems := (Config{TLS: right}).Validate(); len(problems) > 0 {
		t.Error(problems)
	}
	if !right.IsEnabled() || (TLS{}).IsEnabled() || (Config{TLS: right}).IsRequired() {
		t.Error("enabled by a certificate alone, which requires no credential")
	}
	for want, change := range map[string]func(*TLS){
		"tls.cert: set both":    func(c *TLS) { c.Key = secret.Text{} },
		"tls.cert: tls":         func(c *TLS) { c.Key = secret.Literal(otherKey) },
		"tls.client_ca: needs":  func(c *TLS) { *c = TLS{ClientCA: secret.Literal(certPEM)} },
		"tls.client_ca: holds":  func(c *TLS) { c.ClientCA = secret.Literal("none") },
		"tls.client_tenant: ":   func(c *TLS) { c.ClientTenant = "a\x00b" },
		"tls.client_roles[0]: ": func(c *TLS) { c.ClientRoles = []string{""} },
	} {
		c := right
		change(&c)
		if problems := (Config{TLS: c}).Validate(); len(problems) != 1 || !strings.HasPrefix(problems[0].Error(), want) {
			t.Errorf("want %q, got %v", want, problems)
		}
	}
}

// Where only certificates count, a request without one is refused, whatever else it has.
func TestAuthenticateCertificate(t *testing.T) {
	caPEM, _, ca := issueCertificate(t, authority(), nil)
	serverCert, serverKey, _ := issueCertificate(t, &x509.Certificate{DNSNames: []string{"localhost"}}, &ca)
	_, _, client := issueCertificate(t, clientTemplate(nil), &ca)
	a := New(Config{
		TLS:   TLS{Cert: secret.Literal(serverCert), Key: secret.Literal(serverKey), ClientCA: secret.Literal(caPEM)},
		Token: secret.Literal("a-token-of-the-config"),
	})
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.Header.Set("Authorization", "Bearer a-token-of-the-config")
	for name, state := range map[string]*tls.ConnectionState{"no TLS": nil, "no certificate": {}} {
		r.TLS = state
		if who, err := a.AuthenticateCertificate(r); fault.KindOf(err) != fault.Unauthorized || who != (Caller{}) {
			t.Errorf("%s: %v, %v", name, who, err)
		}
	}
	r.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{client.Leaf}, VerifiedChains: [][]*x509.Certificate{{client.Leaf, ca.Leaf}}}
	if who, err := a.AuthenticateCertificate(r); err != nil || who.Subject() != "spiffe://trust.example/robot" {
		t.Errorf("%v, %v", who, err)
	}
}
