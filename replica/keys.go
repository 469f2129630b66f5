package replica

import (
	"crypto/ed25519"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"math/big"
	"time"
)

// keys are what replicas know each other by: a key pair that all of them derive from the root secret. Both sides of a
// connection must prove that they have it. While the secret is rotated, those of the old secrets are accepted, too.
type keys struct {
	own      tls.Certificate
	accepted []ed25519.PublicKey
}

func newKeys(root []byte, old [][]byte) (k keys, err error) {
	for i, secret := range append([][]byte{root}, old...) {
		seed, err := hkdf.Key(sha256.New, secret, nil, "ctxgate replica", ed25519.SeedSize)
		if err != nil {
			return k, fmt.Errorf("deriving the key of the replicas: %w", err)
		}
		private := ed25519.NewKeyFromSeed(seed)
		public, _ := private.Public().(ed25519.PublicKey)
		k.accepted = append(k.accepted, public)
		if i > 0 {
			continue
		}
		// Only the key counts: nobody signs the certificate, and its dates are not checked.
		template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Unix(0, 0), NotAfter: time.Unix(1<<33, 0)}
		raw, err := x509.CreateCertificate(rand.Reader, template, template, public, private)
		if err != nil {
			return k, fmt.Errorf("making the certificate of the replicas: %w", err)
		}
		k.own = tls.Certificate{Certificate: [][]byte{raw}, PrivateKey: private}
	}
	return k, nil
}

var errNotReplica = errors.New("the peer does not have the secret of this gateway")

// verify accepts a peer that has proven to have one of the keys.
func (k keys) verify(c tls.ConnectionState) error {
	if len(c.PeerCertificates) == 0 {
		return errNotReplica
	}
	public, ok := c.PeerCertificates[0].PublicKey.(ed25519.PublicKey)
	for _, key := range k.accepted {
		if ok && key.Equal(public) {
			return nil
		}
	}
	return errNotReplica
}

func (k keys) serverTLS() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{k.own}, ClientAuth: tls.RequireAnyClientCert, VerifyConnection: k.verify,
		NextProtos: []string{"http/1.1"},
	}
}

func (k keys) clientTLS() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{k.own}, VerifyConnection: k.verify,
		InsecureSkipVerify: true, //nolint:gosec // no authority signs the certificate: verify checks the key itself
	}
}
