package auth

import (
	"cmp"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/internal/secret"
)

// TLS is the certificate of the main listener, and which clients' certificates it accepts. Files are read again when
// they change.
type TLS struct {
	// The certificate of the main listener with its chain, in PEM: "file:PATH". Default empty: the listener speaks plain
	// HTTP.
	Cert secret.Text `key:"cert"`

	// The key of the certificate, in PEM: "file:PATH".
	Key secret.Text `key:"key"`

	// The certificate authorities of clients, in PEM: "file:PATH". Setting it turns mutual TLS on. A client with a
	// certificate of one of them is the subject that its SAN names: the first URI, else the first e-mail address, else the
	// first DNS name. A client that also sends a token or a signature is the caller of that.
	ClientCA secret.Text `key:"client_ca"`

	// Whether clients must have a certificate: "require", or "optional" if they may use another credential instead.
	// Default "require".
	ClientAuth string `key:"client_auth" oneof:"require,optional"`

	// The tenant of callers with a certificate. Default: "default".
	ClientTenant string `key:"client_tenant"`

	// Which part of a certificate names the tenant instead: "organization" (the first O of its subject) or "uri-host" (the
	// host of the first URI in its SAN, which SPIFFE calls the trust domain). A certificate without it is refused. Default
	// empty: client_tenant.
	ClientTenantFrom string `key:"client_tenant_from" oneof:",organization,uri-host"`

	// The roles of callers with a certificate, for access rules. Default none.
	ClientRoles []string `key:"client_roles"`
}

// IsEnabled says whether the main listener speaks TLS.
func (t TLS) IsEnabled() bool { return t.Cert.IsSet() }

func (t TLS) problems() []error {
	var problems []error
	problem := func(format string, args ...any) { problems = append(problems, fmt.Errorf(format, args...)) }
	switch {
	case t.Cert.IsSet() != t.Key.IsSet():
		problem("cert: set both cert and key")
	case t.ClientCA.IsSet() && !t.Cert.IsSet():
		problem("client_ca: needs cert and key")
	case t.Cert.Reveal() != "" && t.Key.Reveal() != "":
		if _, err := NewServerTLS(t); err != nil {
			problem("%w", err)
		}
	}
	if err := checkName(t.ClientTenant); t.ClientTenant != "" && err != nil {
		problem("client_tenant: %w", err)
	}
	for i, role := range t.ClientRoles {
		if err := checkName(role); err != nil {
			problem("client_roles[%d]: %w", i, err)
		}
	}
	return problems
}

// NewServerTLS makes the TLS configuration of a listener.
func NewServerTLS(t TLS) (*tls.Config, error) {
	cert, err := tls.X509KeyPair([]byte(t.Cert.Reveal()), []byte(t.Key.Reveal()))
	if err != nil {
		return nil, fmt.Errorf("cert: %w", err)
	}
	c := &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"}}
	if !t.ClientCA.IsSet() {
		return c, nil
	}
	c.ClientCAs = x509.NewCertPool()
	if !c.ClientCAs.AppendCertsFromPEM([]byte(t.ClientCA.Reveal())) {
		return nil, errors.New("client_ca: holds no certificate in PEM")
	}
	c.ClientAuth = tls.RequireAndVerifyClientCert
	if t.ClientAuth == "optional" {
		c.ClientAuth = tls.VerifyClientCertIfGiven
	}
	c.SessionTicketsDisabled = true // a resumed session is not checked against authorities that changed meanwhile
	return c, nil
}

// certificates identifies clients by their certificates, which the listener has verified.
type certificates struct {
	TLS
	proof [sha256.Size]byte // of the authorities
}

func newCertificates(t TLS) *certificates {
	return &certificates{t, sha256.Sum256([]byte("client_ca\x00" + t.ClientCA.Reveal()))}
}

// certificateIssuer is the issuer of subjects that a certificate names.
const certificateIssuer = "certificate"

var errCertificate = fault.New(fault.Unauthorized, "the certificate names no caller")

// authenticate returns the caller of a request's certificate. ok is false if it has none.
func (c *certificates) authenticate(r *http.Request, now time.Time) (who Caller, ok bool, err error) {
	if !c.ClientCA.IsSet() || r.TLS == nil || len(r.TLS.VerifiedChains) == 0 {
		return Caller{}, false, nil
	}
	cert := r.TLS.VerifiedChains[0][0]
	id := identity{
		tenant: cmp.Or(c.ClientTenant, DefaultTenant), subject: subjectOf(cert), issuer: certificateIssuer, credential: certificateIssuer,
		roles: c.ClientRoles, proof: c.proof, expires: cert.NotAfter,
	}
	if c.ClientTenantFrom != "" {
		id.tenant = tenantOf(cert, c.ClientTenantFrom)
	}
	if checkName(id.subject) != nil || checkName(id.tenant) != nil || id.isExpired(now) {
		return Caller{}, true, errCertificate
	}
	return newCaller(id), true, nil
}

// subjectOf is the name in a certificate's SAN.
func subjectOf(cert *x509.Certificate) string {
	switch {
	case len(cert.URIs) > 0:
		return cert.URIs[0].String()
	case len(cert.EmailAddresses) > 0:
		return cert.EmailAddresses[0]
	case len(cert.DNSNames) > 0:
		return cert.DNSNames[0]
	}
	return ""
}

// tenantOf is the part of a certificate that names the tenant; "" if there is none.
func tenantOf(cert *x509.Certificate, from string) string {
	if from == "organization" && len(cert.Subject.Organization) > 0 {
		return cert.Subject.Organization[0]
	}
	if from == "uri-host" {
		for _, u := range cert.URIs {
			return u.Host
		}
	}
	return ""
}

// AuthenticateCertificate identifies the sender of a request by its certificate alone.
func (a *Authenticator) AuthenticateCertificate(r *http.Request) (Caller, error) {
	who, ok, err := a.certificates.authenticate(r, a.now())
	if !ok {
		return Caller{}, errUnauthorized
	}
	return who, err
}
