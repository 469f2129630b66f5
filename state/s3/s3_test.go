package s3

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/ctxgate/ctxgate/internal/secret"
	"github.com/ctxgate/ctxgate/internal/testkit/s3server"
	"github.com/ctxgate/ctxgate/state"
	"github.com/ctxgate/ctxgate/state/memory"
	"github.com/ctxgate/ctxgate/state/statetest"
)

// quickPace makes tests with many Puts, one after the other, short.
var quickPace = pace{linger: time.Millisecond, shortSpacing: time.Millisecond, spacing: 2 * time.Millisecond}

// testServer is the server of all tests of this process; each test has a prefix of its own.
var testServer *s3server.Server

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == writerArg {
		os.Exit(runWriter(os.Args[2:]))
	}
	os.Exit(runTests(m))
}

func runTests(m *testing.M) int {
	dir, err := os.MkdirTemp("", "s3-*")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	if testServer, err = s3server.New(dir); err != nil {
		panic(err)
	}
	defer testServer.Close()
	return m.Run()
}

func testConfig(endpoint, prefix string) state.Blobs {
	return state.Blobs{
		URL: "s3://" + s3server.Bucket + "/" + prefix, Endpoint: endpoint,
		AccessKey: secret.Literal(s3server.AccessKey), SecretKey: secret.Literal(s3server.SecretKey), CacheBytes: 64 << 20,
	}
}

func testOptions(t testing.TB) Options {
	return Options{Config: testConfig(testServer.Proxy.URL, t.Name()+"/"+filepath.Base(t.TempDir())), CacheDir: filepath.Join(t.TempDir(), "cache")}
}

// openQuick opens a driver over another one, which the test closes.
func openQuick(t testing.TB, base state.Driver, opts Options) *Driver {
	t.Helper()
	d, err := open(base, opts)
	if err != nil {
		t.Fatal(err)
	}
	d.packer.pace = quickPace
	t.Cleanup(func() { _ = d.Close() })
	return d
}

// sweeping is a driver that can sweep, as Open returns it.
type sweeping struct {
	*Driver
	state.Sweeper
}

func TestDriver(t *testing.T) {
	statetest.Test(t, func(t *testing.T) state.Driver {
		base := memory.New()
		return sweeping{openQuick(t, base, testOptions(t)), base}
	})
}

func TestDriverWithBlobs(t *testing.T) {
	statetest.TestApart(t, func(t *testing.T) state.Driver {
		base := memory.New()
		return sweeping{openQuick(t, base, testOptions(t)), base}
	})
}

// Without the disk cache every read is one of the bucket; and a base that cannot list a group is asked for all.
func TestDriverWithBlobsUncached(t *testing.T) {
	if os.Getenv(envLong) == "" {
		t.Skipf("set %s to run the suite without the disk cache, too", envLong)
	}
	statetest.TestApart(t, func(t *testing.T) state.Driver {
		opts := testOptions(t)
		opts.Config.CacheBytes = 0
		base := memory.New()
		return sweeping{openQuick(t, struct{ state.Driver }{base}, opts), base}
	})
}
