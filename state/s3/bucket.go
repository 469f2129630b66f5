package s3

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/state"
)

const (
	maxTries      = 4 // of a request that the bucket refuses for now, with growing pauses
	maxIdleConns  = 64
	headerTimeout = 15 * time.Second
)

// bucket makes the requests. Names of objects are without the prefix.
type bucket struct {
	client       *minio.Client
	transport    *http.Transport
	name, prefix string
}

// errNoObject is a segment or object that is not in the bucket.
var errNoObject = errors.New("there is no such object")

func newBucket(cfg state.Blobs) (*bucket, error) {
	name, prefix, err := cfg.Location()
	if err != nil {
		return nil, err
	}
	endpoint := cfg.Endpoint
	if endpoint == "" {
		endpoint = "https://s3." + cfg.RegionOrDefault() + ".amazonaws.com"
	}
	u, err := url.Parse(endpoint)
	if err != nil {
		return nil, fmt.Errorf("the endpoint of the bucket: %w", err)
	}
	transport, err := minio.DefaultTransport(u.Scheme == "https")
	if err != nil {
		return nil, fmt.Errorf("the connections to the bucket: %w", err)
	}
	transport.MaxIdleConnsPerHost, transport.ResponseHeaderTimeout = maxIdleConns, headerTimeout
	creds := credentials.NewIAM("") // of the machine or the pod
	if cfg.AccessKey.IsSet() {
		creds = credentials.NewStaticV4(cfg.AccessKey.Reveal(), cfg.SecretKey.Reveal(), cfg.SessionToken.Reveal())
	}
	client, err := minio.New(u.Host, &minio.Options{
		Creds: creds, Secure: u.Scheme == "https", Region: cfg.RegionOrDefault(), Transport: transport, MaxRetries: maxTries,
	})
	if err != nil {
		return nil, fmt.Errorf("the client of the bucket: %w", err)
	}
	return &bucket{client, transport, name, prefix}, nil
}

// Put writes an object in one request.
func (b *bucket) Put(ctx context.Context, name string, body []byte) error {
	_, err := b.client.PutObject(ctx, b.name, b.prefix+name, bytes.NewReader(body), int64(len(body)),
		minio.PutObjectOptions{ContentType: "application/octet-stream", DisableMultipart: true})
	return asFault(ctx, err)
}

// GetRange reads some bytes of an object.
func (b *bucket) GetRange(ctx context.Context, name string, offset, length int) ([]byte, error) {
	if length == 0 {
		return []byte{}, nil
	}
	var opts minio.GetObjectOptions
	if err := opts.SetRange(int64(offset), int64(offset+length-1)); err != nil {
		return nil, fmt.Errorf("the range of a value: %w", err)
	}
	return b.readObject(ctx, name, opts, length)
}

// Get reads an object of at most limit bytes.
func (b *bucket) Get(ctx context.Context, name string, limit int) ([]byte, error) {
	return b.readObject(ctx, name, minio.GetObjectOptions{}, limit)
}

func (b *bucket) readObject(ctx context.Context, name string, opts minio.GetObjectOptions, limit int) ([]byte, error) {
	core := minio.Core{Client: b.client}
	body, info, _, err := core.GetObject(ctx, b.name, b.prefix+name, opts)
	if err != nil {
		return nil, asFault(ctx, err)
	}
	defer body.Close()
	if info.Size > int64(limit) {
		return nil, fault.New(fault.BadReply, "the bucket sent more than was asked for")
	}
	value := make([]byte, max(0, info.Size))
	if _, err := io.ReadFull(body, value); err != nil {
		return nil, asFault(ctx, err)
	}
	return value, nil
}

// Exists says whether there is an object.
func (b *bucket) Exists(ctx context.Context, name string) (bool, error) {
	_, err := b.client.StatObject(ctx, b.name, b.prefix+name, minio.StatObjectOptions{})
	if err = asFault(ctx, err); errors.Is(err, errNoObject) {
		return false, nil
	}
	return err == nil, err
}

// Remove deletes an object; one that is not there is no error.
func (b *bucket) Remove(ctx context.Context, name string) error {
	err := asFault(ctx, b.client.RemoveObject(ctx, b.name, b.prefix+name, minio.RemoveObjectOptions{}))
	if errors.Is(err, errNoObject) {
		return nil
	}
	return err
}

// List calls f with the objects under a prefix: all of them, or the next folders and objects.
func (b *bucket) List(ctx context.Context, prefix string, recursive bool, f func(name string, size int64) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for object := range b.client.ListObjectsIter(ctx, b.name, minio.ListObjectsOptions{Prefix: b.prefix + prefix, Recursive: recursive}) {
		if object.Err != nil {
			return asFault(ctx, object.Err)
		}
		name, ok := strings.CutPrefix(object.Key, b.prefix)
		if !ok {
			continue
		}
		if err := f(name, object.Size); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// Close ends idle connections.
func (b *bucket) Close() { b.transport.CloseIdleConnections() }

// asFault classifies an error of a request.
func asFault(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	switch reply := minio.ToErrorResponse(err); {
	case reply.Code == minio.NoSuchKey || reply.Code == "NotFound":
		return errNoObject
	case reply.Code == minio.NoSuchBucket:
		return fault.Wrap(fault.Unavailable, "the bucket of the originals does not exist", err)
	case reply.StatusCode == http.StatusForbidden:
		return fault.Wrap(fault.Unavailable, "the bucket of the originals refuses the gateway's credentials", err)
	}
	return fault.Wrap(fault.Unavailable, "the bucket of the originals cannot be used", err)
}
