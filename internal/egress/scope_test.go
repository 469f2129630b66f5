package egress

import (
	"net/netip"
	"testing"
)

func TestScopeOf(t *testing.T) {
	for address, want := range map[string]Scope{
		"8.8.8.8": Public, "2606:4700::1": Public, "10.1.2.3": Private, "192.168.0.1": Private, "fd00::1": Private,
		"100.64.0.1": Private, "::ffff:10.0.0.1": Private, "127.0.0.1": Loopback, "::1": Loopback, "::ffff:127.0.0.1": Loopback,
		"169.254.169.254": Never, "fe80::1": Never, "0.0.0.0": Never, "224.0.0.1": Never,
	} {
		if got := ScopeOf(netip.MustParseAddr(address)); got != want {
			t.Errorf("%s is %d, want %d", address, got, want)
		}
	}
}

// An IPv6 address that a translator or a tunnel turns into an IPv4 address has the scope of that one.
func TestScopeOfEmbeddedIPv4(t *testing.T) {
	for address, want := range map[string]Scope{
		// NAT64, well-known prefix
		"64:ff9b::7f00:1": Loopback, "64:ff9b::a00:1": Private, "64:ff9b::a9fe:a9fe": Never, "64:ff9b::808:808": Public,
		"64:ff9b::": Never, "64:ff9b::6440:1": Private,
		// NAT64, local prefix, embedded at /96, /64, /56 and /48
		"64:ff9b:1::7f00:1": Loopback, "64:ff9b:1::808:808": Public, "64:ff9b:1::a9fe:a9fe": Never, "64:ff9b:1:0:a9:fea9:fe00:0": Never,
		"64:ff9b:1:a9:fe:a9fe::": Never, "64:ff9b:1:a9fe:a9:fe00::": Never, "64:ff9b:1:a9fe:a9:fe00::1": Never, "64:ff9b:1:7f00:0:100::": Loopback,
		"64:ff9b:1:808:8:800::": Public, "64:ff9b:1::1": Never,
		// 6to4
		"2002:7f00:1::1": Loopback, "2002:a9fe:a9fe::": Never, "2002:c0a8:1::1": Private, "2002:808:808::1": Public,
		// Teredo: server, and client inverted
		"2001:0:a9fe:a9fe::": Never, "2001:0:808:808:0:0:80ff:fffe": Loopback, "2001:0:808:808:0:0:f5ff:fffe": Private, "2001:0:808:808:0:0:f7f7:f7f7": Public,
		// IPv4-compatible, IPv4-translated, IPv4-mapped with a zone
		"::7f00:1": Loopback, "::a00:1": Private, "::a9fe:a9fe": Never, "::ffff:0:7f00:1": Loopback, "::ffff:0:a9fe:a9fe": Never, "::ffff:a9fe:a9fe": Never,
		// ISATAP, with either bit
		"2606:4700::5efe:7f00:1": Loopback, "2606:4700::200:5efe:a9fe:a9fe": Never, "2606:4700::5efe:808:808": Public,
		// addresses that no authorization server has
		"0.1.2.3": Never, "255.255.255.255": Never, "240.0.0.1": Never, "192.0.0.192": Never, "100.100.100.200": Never,
		"168.63.129.16": Never, "fd00:ec2::254": Never, "fec0::1": Private, "198.18.0.1": Private, "fe80::1%lo": Never,
	} {
		if got := ScopeOf(netip.MustParseAddr(address)); got != want {
			t.Errorf("%s is %d, want %d", address, got, want)
		}
	}
}
