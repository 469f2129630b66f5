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

// Handshake is what a server declared about itself.
type Handshake struct {
	Protocol     mcp.Protocol
	Version      string
	Capabilities []byte // the raw object
	Info         []byte // the raw object; nil when the server sent none
	Instructions string

	noHandshake bool // it answers requests but knows neither handshake
	listsLegacy bool // it is modern, and lists a legacy revision too
}

// HasCapability reports whether the server declared a capability.
func (h Handshake) HasCapability(name string) bool {
	if h.noHandshake {
		return name == "tools"
	}
	caps, err := jsonscan.FieldsOf(h.Capabilities)
	if err != nil {
		return false
	}
	_, ok := caps.Get(name)
	return ok
}

// HasSubCapability reports whether the server declared a part of a capability: "listChanged", or "subscribe"
// of resources.
func (h Handshake) HasSubCapability(name, part string) bool {
	caps, err := jsonscan.FieldsOf(h.Capabilities)
	if err != nil {
		return false
	}
	raw, _ := caps.Get(name)
	inner, err := jsonscan.FieldsOf(raw)
	if err != nil {
		return false
	}
	v, _ := inner.Get(part)
	return string(v) == "true"
}

// gatewayInfo is the clientInfo of calls of our own.
var gatewayInfo = []byte(`{"name":"ctxgate","version":"1"}`)

// clientMeta are the clientInfo and capabilities that a server gets of a client.
func clientMeta(c mcp.Client) (info, caps []byte) {
	info, caps = c.Info, c.Capabilities
	if info == nil {
		info = gatewayInfo
	}
	if caps == nil {
		caps = []byte("{}")
	}
	return info, caps
}

// encodeParams encodes a call's params for the server's revision. The _meta keys of the client's own
// revision are removed.
func (h Handshake) encodeParams(f *inflight) []byte {
	call := f.call
	remove := func(key string) jsonscan.Change { return jsonscan.Change{Key: key} }
	meta := []jsonscan.Change{remove(mcp.MetaProgressToken)}
	if call.WantsProgress {
		meta[0].Value = strconv.AppendInt(nil, f.id, 10)
	}
	if h.Protocol != mcp.Modern {
		meta = append(meta, remove(mcp.MetaProtocolVersion), remove(mcp.MetaClientInfo), remove(mcp.MetaClientCapabilities), remove(mcp.MetaLogLevel))
		return call.Params.With(call.Changes, meta)
	}
	info, caps := clientMeta(call.Client)
	level := remove(mcp.MetaLogLevel)
	if call.LogLevel != "" {
		level.Value = mcp.Quote(call.LogLevel)
	}
	meta = append(meta,
		jsonscan.Change{Key: mcp.MetaProtocolVersion, Value: mcp.Quote(h.Version)},
		jsonscan.Change{Key: mcp.MetaClientInfo, Value: info},
		jsonscan.Change{Key: mcp.MetaClientCapabilities, Value: caps}, level)
	return call.Params.With(call.Changes, meta)
}

// discover is the modern handshake. It returns false for a server that is not modern: any answer of another
// kind, and silence, means a legacy one. Only a failure of the connection is an error.
func (c *Conn) discover(ctx context.Context, client mcp.Client) (bool, error) {
	c.handshake = Handshake{Protocol: mcp.Modern, Version: mcp.V20260728}
	m, err := c.callEmpty(ctx, mcp.ServerDiscover, client)
	if err == nil && refusedButSupports(m) {
		m, err = c.callEmpty(ctx, mcp.ServerDiscover, client)
	}
	switch {
	case err != nil && c.Err() != nil:
		return false, err
	case err != nil || m.IsError:
		return false, nil //nolint:nilerr // silence, and any refusal, is how legacy servers answer
	}
	result, _ := jsonscan.ReadFields(m.Body, m.Result)
	versions, ok := result.Get("supportedVersions")
	if !ok || !containsText(versions, mcp.V20260728) {
		return false, nil
	}
	c.handshake.listsLegacy = slices.ContainsFunc(mcp.LegacyVersions, func(v string) bool { return containsText(versions, v) })
	c.handshake.Capabilities, _ = result.Get("capabilities")
	c.handshake.Instructions = result.Text("instructions")
	if meta, ok := result.Field("_meta"); ok {
		if fields, err := jsonscan.ReadFields(m.Body, meta.Value); err == nil {
			c.handshake.Info, _ = fields.Get(mcp.MetaServerInfo)
		}
	}
	return true, nil
}

// refusedButSupports reports whether a server refused the modern revision and lists it as supported in the
// same reply. It is not a legacy server, and is asked again (Protocol Version Negotiation).
func refusedButSupports(m rpc.Message) bool {
	if m.ErrorCode() != mcp.CodeUnsupportedVersion {
		return false
	}
	fields, _ := jsonscan.ReadFields(m.Body, m.Error)
	data, _ := fields.Get("data")
	inner, _ := jsonscan.FieldsOf(data)
	supported, _ := inner.Get("supported")
	return containsText(supported, mcp.V20260728)
}

func containsText(array []byte, text string) bool {
	found := false
	_ = jsonscan.EachElement(array, jsonscan.Span{End: len(array)}, func(s jsonscan.Span) error {
		found = found || jsonscan.DecodeString(s.Of(array)) == text
		return nil
	})
	return found
}

// initialize is the legacy handshake.
func (c *Conn) initialize(ctx context.Context, client mcp.Client) error {
	c.handshake = Handshake{Protocol: mcp.Legacy, Version: mcp.V20251125}
	info, caps := clientMeta(client)
	m, err := c.callEmpty(ctx, mcp.Initialize, mcp.Client{},
		jsonscan.Change{Key: "protocolVersion", Value: mcp.Quote(mcp.V20251125)},
		jsonscan.Change{Key: "capabilities", Value: caps},
		jsonscan.Change{Key: "clientInfo", Value: info})
	if err != nil {
		return err
	}
	if m.IsError {
		return refusalError(mcp.Initialize, m)
	}
	result, err := jsonscan.ReadFields(m.Body, m.Result)
	if err != nil {
		return fault.Wrap(fault.BadReply, "the server's reply to initialize cannot be read", err)
	}
	c.handshake.Version = result.Text("protocolVersion")
	if mcp.ProtocolOf(c.handshake.Version) != mcp.Legacy {
		return fault.Wrap(fault.BadReply, "the server chose a protocol revision that is not supported", fmt.Errorf("revision %q", c.handshake.Version))
	}
	c.handshake.Capabilities, _ = result.Get("capabilities")
	c.handshake.Info, _ = result.Get("serverInfo")
	c.handshake.Instructions = result.Text("instructions")
	return c.Notify(mcp.NotifyInitialized, nil)
}

// refusalError is a server's error reply to a request of our own.
func refusalError(method string, m rpc.Message) error {
	fields, _ := jsonscan.ReadFields(m.Body, m.Error)
	code, _ := fields.Get("code")
	return fault.Wrap(fault.BadReply, "the server refused "+method, fmt.Errorf("code %s: %s", code, fields.Text("message")))
}
