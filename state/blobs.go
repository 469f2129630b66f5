package state

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/ctxgate/ctxgate/internal/secret"
	"github.com/ctxgate/ctxgate/internal/unit"
)

// Blobs says in which bucket originals are stored.
type Blobs struct {
	// The bucket, and what the names of its objects begin with: s3://bucket or s3://bucket/prefix. The bucket must exist, and
	// nothing else may write under the prefix. The driver then has a pointer of about 100 bytes for each original, and
	// max_bytes counts these. If the driver loses everything, `ctxgate state rebuild` makes the pointers again.
	// Default empty: originals are in the driver.
	URL string `key:"url"`

	// The server, if it is not Amazon's: https://… or http://…. Default empty: AWS_ENDPOINT_URL_S3 or AWS_ENDPOINT_URL of the
	// environment, else Amazon's server of the region.
	Endpoint string `key:"endpoint"`

	// The region of the bucket. Default empty: AWS_REGION or AWS_DEFAULT_REGION of the environment, else us-east-1.
	Region string `key:"region"`

	// The id of the key that requests are signed with. Default empty: AWS_ACCESS_KEY_ID of the
	// environment, else the role of the machine or the pod.
	AccessKey secret.Text `key:"access_key_id" literal:"ok"`

	// The key itself. Default empty: AWS_SECRET_ACCESS_KEY of the environment.
	SecretKey secret.Text `key:"secret_access_key"`

	// The token of a temporary key. Default empty: AWS_SESSION_TOKEN of the environment.
	SessionToken secret.Text `key:"session_token"`

	// A folder on a local disk for copies of originals that were stored or read a short while ago, encrypted as they are in the bucket. "~",
	// "$HOME" and a path relative to the config file work. Default empty: blob-cache in data_dir.
	CacheDir string `key:"cache_dir"`

	// The most bytes in cache_dir; a size. Default 1GiB. With 0 there are no copies.
	CacheBytes unit.Bytes `key:"cache_bytes"`
}

// IsSet reports whether originals are in a bucket.
func (b Blobs) IsSet() bool { return b.URL != "" }

// Location is the bucket and what the names of its objects begin with.
func (b Blobs) Location() (bucket, prefix string, err error) {
	rest, ok := strings.CutPrefix(b.URL, "s3://")
	bucket, prefix, _ = strings.Cut(rest, "/")
	if prefix = strings.Trim(prefix, "/"); prefix != "" {
		prefix += "/"
	}
	if !ok || bucket == "" || strings.ContainsAny(rest, "?#@ ") || strings.Contains(prefix, "//") {
		return "", "", errors.New("url: write s3://bucket or s3://bucket/prefix")
	}
	return bucket, prefix, nil
}

// RegionOrDefault is the region of the bucket.
func (b Blobs) RegionOrDefault() string { return cmp.Or(b.Region, "us-east-1") }

// Validate lists every problem; each text begins with the key it is about.
func (b Blobs) Validate() []error {
	var problems []error
	if b.CacheBytes < 0 {
		problems = append(problems, errors.New("cache_bytes: must not be negative"))
	}
	if !b.IsSet() {
		return problems
	}
	if _, _, err := b.Location(); err != nil {
		problems = append(problems, err)
	}
	if b.Endpoint != "" {
		u, err := url.Parse(b.Endpoint)
		if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" || u.User != nil || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" {
			problems = append(problems, fmt.Errorf("endpoint: %q is not the address of a server, such as https://s3.example.com", b.Endpoint))
		}
	}
	if b.AccessKey.IsSet() != b.SecretKey.IsSet() {
		problems = append(problems, errors.New("access_key_id: set secret_access_key, too, or neither"))
	}
	return problems
}

// ApplyEnv sets what the configuration leaves open, from the variables that the tools of AWS read.
func (b *Blobs) ApplyEnv(lookup func(name string) (string, bool)) {
	if !b.IsSet() {
		return
	}
	first := func(names ...string) string {
		for _, name := range names {
			if value, _ := lookup(name); value != "" {
				return value
			}
		}
		return ""
	}
	b.Endpoint = cmp.Or(b.Endpoint, first("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"))
	b.Region = cmp.Or(b.Region, first("AWS_REGION", "AWS_DEFAULT_REGION"))
	if id, key := first("AWS_ACCESS_KEY_ID"), first("AWS_SECRET_ACCESS_KEY"); !b.AccessKey.IsSet() && !b.SecretKey.IsSet() && id != "" && key != "" {
		b.AccessKey, b.SecretKey = secret.Literal(id), secret.Literal(key)
		secret.Register(key)
		if token := first("AWS_SESSION_TOKEN"); token != "" {
			b.SessionToken = secret.Literal(token)
			secret.Register(token)
		}
	}
}
