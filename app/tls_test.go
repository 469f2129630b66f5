package app

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/ctxgate/ctxgate/internal/secret"
)

// selfSigned returns a certificate for 127.0.0.1 and its key, in PEM.
func selfSigned(t *testing.T, serial int64) (certPEM, keyPEM secret.Text) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(serial), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return secret.Literal(string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))),
		secret.Literal(string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: raw})))
}

// The main listener speaks TLS and HTTP/2; a reload changes the certificate of new connections, and one that cannot be
// read changes nothing.
func TestTLSListener(t *testing.T) {
	cfg := load(t, t.TempDir(), inMemory)
	cfg.Auth.TLS.Cert, cfg.Auth.TLS.Key = selfSigned(t, 1)
	r, a := startApp(t, cfg)
	get := func() (serial int64, proto string) {
		t.Helper()
		pool := x509.NewCertPool()
		pool.AppendCertsFromPEM([]byte(a.cfg.Auth.TLS.Cert.Reveal()))
		client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}, ForceAttemptHTTP2: true}}
		defer client.CloseIdleConnections()
		req, _ := http.NewRequestWithContext(context.Background(), http.MethodGet, "https://"+a.listeners[0].Addr().String()+"/healthz", nil)
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		return resp.TLS.PeerCertificates[0].SerialNumber.Int64(), resp.Proto
	}
	if serial, proto := get(); serial != 1 || proto != "HTTP/2.0" {
		t.Errorf("certificate %d, %s", serial, proto)
	}
	resp, err := r.client.Get(r.main + "/healthz")
	if err == nil {
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusBadRequest {
			t.Errorf("plain HTTP got %d", resp.StatusCode)
		}
	}
	next := cfg
	next.Auth.TLS.Cert, next.Auth.TLS.Key = selfSigned(t, 2)
	if report := a.Reload(next); report.Failed != "" {
		t.Fatal(report)
	}
	if serial, _ := get(); serial != 2 {
		t.Errorf("certificate %d after the reload", serial)
	}
	broken := next
	broken.Auth.TLS.Key = cfg.Auth.TLS.Key
	if report := a.Reload(broken); report.Failed != "tls" {
		t.Errorf("a key of another certificate: %+v", report)
	}
	if serial, _ := get(); serial != 2 {
		t.Errorf("certificate %d after a reload that failed", serial)
	}
	plain := next
	plain.Auth.TLS.Cert, plain.Auth.TLS.Key = secret.Text{}, secret.Text{}
	if report := a.Reload(plain); report.Failed != "" {
		t.Fatal(report)
	}
	a.cfg = next
	if serial, _ := get(); serial != 2 {
		t.Errorf("certificate %d after TLS was taken out of the file", serial)
	}
}
