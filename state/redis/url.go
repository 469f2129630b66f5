package redis

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"
)

// DefaultPrefix begins all keys, unless the URL has another prefix.
const DefaultPrefix = "ctxgate:"

// How long a connection may take to open, and a server to answer a command that does not wait.
const (
	dialTimeout  = time.Second
	replyTimeout = 3 * time.Second
)

// address is a parsed URL.
type address struct {
	hosts            []string // of servers or, with master, of Sentinels
	master           string   // the name that Sentinels know the primary by
	user, password   string
	sentinelUser     string
	sentinelPassword string
	db               int
	tls              *tls.Config
	prefix           string
}

// CheckURL reports what is wrong with a URL. It reads the files that the URL names.
func CheckURL(text string) error {
	_, err := parseURL(text)
	return err
}

// parseURL reads redis://, rediss://, redis+sentinel:// and rediss+sentinel:// URLs; "valkey" works for "redis". net/url
// does not take several hosts. No error has a part of the URL that could be a secret.
func parseURL(text string) (address, error) {
	scheme, rest, ok := strings.Cut(text, "://")
	scheme = strings.Replace(scheme, "valkey", "redis", 1)
	kind, isSentinel := strings.CutSuffix(scheme, "+sentinel")
	if !ok || kind != "redis" && kind != "rediss" {
		return address{}, errors.New("must begin with redis://, rediss://, redis+sentinel:// or rediss+sentinel://")
	}
	authority, rest, path := cutAny(rest)
	a := address{prefix: DefaultPrefix}
	if i := strings.LastIndexByte(authority, '@'); i >= 0 {
		user, password, _ := strings.Cut(authority[:i], ":")
		var err1, err2 error
		a.user, err1 = url.PathUnescape(user)
		a.password, err2 = url.PathUnescape(password)
		if err1 != nil || err2 != nil {
			return address{}, errors.New("the user or the password is not percent-encoded as it must be in a URL")
		}
		authority = authority[i+1:]
	}
	port := "6379"
	if isSentinel {
		port = "26379"
	}
	for host := range strings.SplitSeq(authority, ",") {
		if host == "" {
			return address{}, errors.New("a host is empty")
		}
		if _, _, err := net.SplitHostPort(host); err != nil {
			host = net.JoinHostPort(strings.Trim(host, "[]"), port)
		}
		a.hosts = append(a.hosts, host)
	}
	query, err := url.ParseQuery(rest)
	if err != nil {
		return address{}, errors.New("what follows the question mark cannot be read")
	}
	if isSentinel {
		if a.master, err = url.PathUnescape(path); err != nil || a.master == "" {
			return address{}, errors.New("the name of the primary is missing: redis+sentinel://host:26379,host:26379/NAME")
		}
	} else if path != "" {
		query.Set("db", path)
	}
	if kind == "rediss" {
		a.tls = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	return a, a.setOptions(query)
}

// cutAny splits what follows the scheme into the part before the path, the query and the path.
func cutAny(rest string) (authority, query, path string) {
	// A password may have a question mark or a slash that is not encoded.
	begin := strings.LastIndexByte(rest, '@') + 1
	end := len(rest)
	if i := strings.IndexAny(rest[begin:], "/?"); i >= 0 {
		end = begin + i
	}
	path, query, _ = strings.Cut(rest[end:], "?")
	return rest[:end], query, strings.TrimPrefix(path, "/")
}

func (a *address) setOptions(query url.Values) error {
	for name, values := range query {
		value := values[len(values)-1]
		switch name {
		case "addr": // as other clients write several hosts
			a.hosts = append(a.hosts, values...)
		case "master_set":
			a.master = value
		case "db":
			db, err := strconv.Atoi(value)
			if err != nil || db < 0 {
				return fmt.Errorf("the database %q is not a number", value)
			}
			a.db = db
		case "prefix":
			if strings.ContainsAny(value, "{}") {
				return errors.New("the prefix has a brace, which decides where a Cluster stores a key")
			}
			a.prefix = value
		case "sentinel_username":
			a.sentinelUser = value
		case "sentinel_password":
			a.sentinelPassword = value
		case "tls_ca", "tls_cert", "tls_key", "tls_server_name":
			if a.tls == nil {
				return fmt.Errorf("%s needs rediss://", name)
			}
		default:
			return fmt.Errorf("%q is not one of db, prefix, sentinel_username, sentinel_password, tls_ca, tls_cert, tls_key, tls_server_name", name)
		}
	}
	if a.db != 0 && len(a.hosts) > 1 && a.master == "" {
		return errors.New("a Cluster has no databases other than 0")
	}
	if a.tls == nil {
		return nil
	}
	a.tls.ServerName = query.Get("tls_server_name")
	if path := query.Get("tls_ca"); path != "" {
		pem, err := os.ReadFile(path)
		if err != nil {
			return fmt.Errorf("reading tls_ca: %w", err)
		}
		if a.tls.RootCAs = x509.NewCertPool(); !a.tls.RootCAs.AppendCertsFromPEM(pem) {
			return fmt.Errorf("tls_ca: %s has no certificate", path)
		}
	}
	if cert := query.Get("tls_cert"); cert != "" {
		pair, err := tls.LoadX509KeyPair(cert, query.Get("tls_key"))
		if err != nil {
			return fmt.Errorf("reading tls_cert and tls_key: %w", err)
		}
		a.tls.Certificates = []tls.Certificate{pair}
	}
	return nil
}

// sharedOption is the option of the client that finds its way to the right server by itself.
func (a address) sharedOption() rueidis.ClientOption {
	o := a.option()
	o.InitAddress = a.hosts
	if a.master != "" {
		o.Sentinel = rueidis.SentinelOption{
			MasterSet: a.master, Username: a.sentinelUser, Password: a.sentinelPassword,
			TLSConfig: a.tls, Dialer: o.Dialer, TopologyRefreshInterval: refreshEvery,
		}
	} else {
		o.ClusterOption = rueidis.ClusterOption{ShardsRefreshInterval: 5 * refreshEvery}
	}
	return o
}

// nodeOption is the option of a client of one server, for what must not go to another.
func (a address) nodeOption(host string) rueidis.ClientOption {
	o := a.option()
	o.InitAddress = []string{host}
	o.ForceSingleClient, o.DisableRetry = true, true
	o.PipelineMultiplex = -1
	o.BlockingPoolSize = writerConns + 2
	return o
}

// sentinelOption is the option of a client of one Sentinel.
func (a address) sentinelOption(host string) rueidis.ClientOption {
	o := a.nodeOption(host)
	o.Username, o.Password, o.SelectDB = a.sentinelUser, a.sentinelPassword, 0
	return o
}

func (a address) option() rueidis.ClientOption {
	return rueidis.ClientOption{
		TLSConfig: a.tls, Username: a.user, Password: a.password, SelectDB: a.db, ClientName: "ctxgate",
		ClientSetInfo: rueidis.DisableClientSetInfo,
		Dialer:        net.Dialer{Timeout: dialTimeout, KeepAlive: dialTimeout}, ConnWriteTimeout: replyTimeout,
		// Half a MiB each by default; many connections are idle.
		ReadBufferEachConn: 32 << 10, WriteBufferEachConn: 32 << 10, RingScaleEachConn: 8,
		// What is read here is either large and read once, or must not be stale.
		DisableCache: true,
	}
}
