package upstream

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/jsonscan"
	"github.com/ctxgate/ctxgate/mcp"
	"github.com/ctxgate/ctxgate/rpc"
)

// Hello is what is known of a server once it was greeted.
type Hello struct {
	Era          mcp.Era
	Version      string
	Capabilities []byte // the raw object
	Info         []byte // the raw object; nil when it did not say
	Instructions string

	plain bool // it answers requests and knows no greeting
	older bool // it is of the newer era, and lists a revision of the older one
}

// Offers says whether the server declared a capability.
func (h Hello) Offers(capability string) bool {
	if h.plain {
		return capability == "tools"
	}
	caps, err := jsonscan.FieldsOf(h.Capabilities)
	if err != nil {
		return false
	}
	_, ok := caps.Get(capability)
	return ok
}

// Notes says whether the server declared that it tells of changes: "listChanged" of a
// capability, or "subscribe" of resources.
func (h Hello) Notes(capability, what string) bool {
	caps, err := jsonscan.FieldsOf(h.Capabilities)
	if err != nil {
		return false
	}
	raw, _ := caps.Get(capability)
	inner, err := jsonscan.FieldsOf(raw)
	if err != nil {
		return false
	}
	v, _ := inner.Get(what)
	return string(v) == "true"
}

// self is how the gateway names itself to servers.
var self = []byte(`{"name":"ctxgate","version":"1"}`)

// dress gives a call's params what the server's era wants in them, and nothing of the client's.
func (h Hello) dress(f *flight) []byte {
	call := f.call
	drop := func(key string) jsonscan.Change { return jsonscan.Change{Key: key} }
	var meta []jsonscan.Change
	if call.Progress {
		meta = append(meta, jsonscan.Change{Key: mcp.KeyProgress, Value: strconv.AppendInt(nil, f.id, 10)})
	} else {
		meta = append(meta, drop(mcp.KeyProgress))
	}
	if h.Era != mcp.EraModern {
		meta = append(meta, drop(mcp.KeyVersion), drop(mcp.KeyClientInfo), drop(mcp.KeyCapabilities), drop(mcp.KeyLogLevel))
		return call.Params.With(call.Changes, meta)
	}
	info, caps := call.Client.Info, call.Client.Capabilities
	if info == nil {
		info = self
	}
	if caps == nil {
		caps = []byte("{}")
	}
	meta = append(meta,
		jsonscan.Change{Key: mcp.KeyVersion, Value: mcp.Quote(h.Version)},
		jsonscan.Change{Key: mcp.KeyClientInfo, Value: info},
		jsonscan.Change{Key: mcp.KeyCapabilities, Value: caps})
	if call.LogLevel != "" {
		meta = append(meta, jsonscan.Change{Key: mcp.KeyLogLevel, Value: mcp.Quote(call.LogLevel)})
	} else {
		meta = append(meta, drop(mcp.KeyLogLevel))
	}
	return call.Params.With(call.Changes, meta)
}

// discover says whether the server is one of the newer era. Only a failure of the connection is
// an error: whatever a server answers that is not of that era means the older one.
func (c *Conn) discover(ctx context.Context, client mcp.Client) (bool, error) {
	c.hello = Hello{Era: mcp.EraModern, Version: mcp.V20260728}
	empty, _ := mcp.ReadParams(nil)
	ask := &Call{Method: mcp.Discover, Params: empty, Client: client}
	m, err := c.Call(ctx, ask)
	if err == nil && speaksAfterAll(m) {
		m, err = c.Call(ctx, ask)
	}
	switch {
	case err != nil && c.Why() != nil:
		return false, err
	case err != nil || m.IsError:
		return false, nil //nolint:nilerr // silence, and any refusal, is how the older era answers
	}
	result, _ := jsonscan.ReadFields(m.Body, m.Result)
	versions, ok := result.Get("supportedVersions")
	if !ok || !contains(versions, mcp.V20260728) {
		return false, nil
	}
	c.hello.older = slices.ContainsFunc(mcp.Legacy, func(v string) bool { return contains(versions, v) })
	c.hello.Capabilities, _ = result.Get("capabilities")
	c.hello.Instructions = result.Text("instructions")
	if meta, ok := result.Field("_meta"); ok {
		if fields, err := jsonscan.ReadFields(m.Body, meta.Value); err == nil {
			c.hello.Info, _ = fields.Get(mcp.KeyServerInfo)
		}
	}
	return true, nil
}

func contains(array []byte, text string) bool {
	found := false
	_ = jsonscan.Elements(array, jsonscan.Span{End: len(array)}, func(s jsonscan.Span) error {
		found = found || jsonscan.TextOf(s.Of(array)) == text
		return nil
	})
	return found
}

// initialize begins a session of the older era.
func (c *Conn) initialize(ctx context.Context, client mcp.Client) error {
	c.hello = Hello{Era: mcp.EraLegacy, Version: mcp.V20251125}
	info, caps := client.Info, client.Capabilities
	if info == nil {
		info = self
	}
	if caps == nil {
		caps = []byte("{}")
	}
	params, _ := mcp.ReadParams(nil)
	m, err := c.Call(ctx, &Call{Method: mcp.Initialize, Params: params, Changes: []jsonscan.Change{
		{Key: "protocolVersion", Value: mcp.Quote(mcp.V20251125)},
		{Key: "capabilities", Value: caps},
		{Key: "clientInfo", Value: info},
	}})
	if err != nil {
		return err
	}
	if m.IsError {
		return refusal("initialize", m)
	}
	result, err := jsonscan.ReadFields(m.Body, m.Result)
	if err != nil {
		return fault.Wrap(fault.BadReply, "the server's greeting cannot be read", err)
	}
	c.hello.Version = result.Text("protocolVersion")
	if mcp.EraOf(c.hello.Version) != mcp.EraLegacy {
		return fault.Wrap(fault.BadReply, "the server speaks a revision that is not spoken here", fmt.Errorf("revision %q", c.hello.Version))
	}
	c.hello.Capabilities, _ = result.Get("capabilities")
	c.hello.Info, _ = result.Get("serverInfo")
	c.hello.Instructions = result.Text("instructions")
	return c.Notify(mcp.Initialized, nil)
}

// refusal is a server's error reply as an error of ours.
func refusal(method string, m rpc.Message) error {
	fields, _ := jsonscan.ReadFields(m.Body, m.Error)
	code, _ := fields.Get("code")
	return fault.Wrap(fault.BadReply, "the server refused "+method, fmt.Errorf("code %s: %s", code, fields.Text("message")))
}
