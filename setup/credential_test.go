package setup

import "testing"

func TestCredentialsAreToldFromSettings(t *testing.T) {
	for _, tt := range []struct {
		name, value string
		want        bool
	}{
		{"GITHUB_PERSONAL_ACCESS_TOKEN", "x", true},
		{"API_KEY", "abc", true},
		{"BRAVE_API_KEY", "BSAxyz", true},
		{"DB_PASSWORD", "hunter2", true},
		{"Authorization", "Bearer x", true},
		{"X-Api-Key", "k", true},
		{"key", "abc", true},
		{"SLACK_BOT", "xoxb-1-2", true},
		{"ANYTHING", "ghp_0123456789abcdefghij0123456789abcdef", true},
		{"DATABASE_URL", "postgres://ann:pw@db/x", true},
		{"", "4f9a8b7c6d5e4f3a2b1c0d9e8f7a6b5c", true},
		{"", "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.x", true},
		{"DEBUG", "true", false},
		{"API_KEY", "", false},
		{"USE_TOKEN", "true", false},
		{"MAX_TOKENS", "4000", false},
		{"TOKEN_PATH", "/home/ann/token", false},
		{"KEY_FILE", "/home/ann/key.pem", false},
		{"KEYCLOAK_REALM", "main", false},
		{"MONKEY", "banana", false},
		{"AUTHOR", "ann", false},
		{"DATABASE_URL", "postgres://db/x", false},
		{"ALLOWED", "/home/ann/projects/2026/alpha1/beta2", false},
		{"", "@modelcontextprotocol/server-filesystem", false},
		{"", "mcp-server-time-2026.1.2-beta3", false},
		{"TENANT_ID", "1b4e28ba-2fa1-11d2-883f-0016d3cca427", false},
		{"LANG", "en_US.UTF-8", false},
	} {
		if got := isCredential(tt.name, tt.value); got != tt.want {
			t.Errorf("%s=%s: %v, want %v", tt.name, tt.value, got, tt.want)
		}
	}
}
