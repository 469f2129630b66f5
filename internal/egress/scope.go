package egress

import (
	"net/netip"
	"slices"
)

// Scope is how close an address is to the gateway; a higher value is closer.
type Scope int

// The scopes, the farthest first.
const (
	Public   Scope = iota // the internet
	Private               // a private network
	Loopback              // this machine
	Never                 // no server of use is there: link-local, multicast, cloud metadata
)

// morePrivate are private networks that netip does not count as private.
var morePrivate = prefixes(
	"100.64.0.0/10", // carrier-grade NAT, RFC 6598
	"198.18.0.0/15", // benchmarks, RFC 2544; some VPN clients use it on this machine
	"fec0::/10",     // site-local, RFC 3879
)

// unusable are networks and addresses where no server of use is.
var unusable = prefixes(
	"0.0.0.0/8",          // "this network"; 0.0.0.0 connects to this machine
	"192.0.0.0/24",       // protocol assignments, RFC 6890; 192.0.0.192 is Oracle Cloud's metadata
	"240.0.0.0/4",        // reserved, and broadcast
	"100.100.100.200/32", // Alibaba Cloud's metadata
	"168.63.129.16/32",   // Azure's host agent
	"fd00:ec2::/32",      // AWS metadata over IPv6
)

func prefixes(list ...string) []netip.Prefix {
	out := make([]netip.Prefix, len(list))
	for i, s := range list {
		out[i] = netip.MustParsePrefix(s)
	}
	return out
}

// ScopeOf is the closest scope of an address and of the IPv4 addresses embedded in it: a translator or
// a tunnel delivers to the embedded address.
func ScopeOf(ip netip.Addr) Scope {
	ip = ip.WithZone("").Unmap()
	scope := scopeOfPlain(ip)
	for _, inner := range embeddedIPv4(ip) {
		scope = max(scope, scopeOfPlain(inner))
	}
	return scope
}

func scopeOfPlain(ip netip.Addr) Scope {
	within := func(p netip.Prefix) bool { return p.Contains(ip) }
	switch {
	case ip.IsLoopback():
		return Loopback
	case !ip.IsValid(), ip.IsUnspecified(), ip.IsMulticast(), ip.IsLinkLocalUnicast(), slices.ContainsFunc(unusable, within):
		return Never
	case ip.IsPrivate(), slices.ContainsFunc(morePrivate, within):
		return Private
	}
	return Public
}

var (
	nat64      = netip.MustParsePrefix("64:ff9b::/96")    // RFC 6052
	nat64Local = netip.MustParsePrefix("64:ff9b:1::/48")  // RFC 8215
	sixToFour  = netip.MustParsePrefix("2002::/16")       // RFC 3056
	teredo     = netip.MustParsePrefix("2001::/32")       // RFC 4380
	compatible = netip.MustParsePrefix("::/96")           // RFC 4291, 2.5.5.1
	translated = netip.MustParsePrefix("::ffff:0:0:0/96") // RFC 2765
)

// embeddedIPv4 are the IPv4 addresses that an IPv6 address stands for, or may stand for.
func embeddedIPv4(ip netip.Addr) []netip.Addr {
	if !ip.Is6() || ip.IsUnspecified() || ip.IsLoopback() {
		return nil
	}
	b := ip.As16()
	v4 := func(at ...int) netip.Addr { return netip.AddrFrom4([4]byte{b[at[0]], b[at[1]], b[at[2]], b[at[3]]}) }
	last := v4(12, 13, 14, 15)
	switch {
	case nat64.Contains(ip), compatible.Contains(ip), translated.Contains(ip):
		return []netip.Addr{last}
	case sixToFour.Contains(ip):
		return []netip.Addr{v4(2, 3, 4, 5)}
	case teredo.Contains(ip): // the relay's server, and the client behind its NAT, inverted
		return []netip.Addr{v4(4, 5, 6, 7), netip.AddrFrom4([4]byte{^b[12], ^b[13], ^b[14], ^b[15]})}
	case nat64Local.Contains(ip):
		// The operator chooses the prefix length, so every possible position counts. A candidate in
		// 0.0.0.0/8 is padding of another length, unless all of them are.
		candidates := []netip.Addr{v4(6, 7, 9, 10), v4(7, 9, 10, 11), v4(9, 10, 11, 12), last}
		candidates = slices.DeleteFunc(candidates, func(a netip.Addr) bool { return a.As4()[0] == 0 })
		if len(candidates) == 0 {
			return []netip.Addr{netip.IPv4Unspecified()}
		}
		return candidates
	case b[8]&^0x02 == 0 && b[9] == 0 && b[10] == 0x5e && b[11] == 0xfe: // ISATAP, RFC 5214
		return []netip.Addr{last}
	}
	return nil
}
