package config

import "testing"

// What the file leaves open comes from the variables of the AWS tools; without a bucket they mean nothing.
func TestBlobsFromTheEnvironment(t *testing.T) {
	env := Env{
		"AWS_ACCESS_KEY_ID=AKIDEXAMPLE", "AWS_SECRET_ACCESS_KEY=a-secret-of-the-bucket", "AWS_SESSION_TOKEN=a-token-of-the-session", "AWS_REGION=eu-west-1",
		"AWS_ENDPOINT_URL_S3=http://127.0.0.1:9000", "HOME=/home/me",
	}
	load := func(text string) Loaded {
		t.Helper()
		loaded, problems := LoadBytes("ctxgate.toml", []byte(text), env)
		if len(problems) == 0 {
			problems = loaded.ResolveSecrets(env)
		}
		if len(problems) > 0 {
			t.Fatal(problems)
		}
		return loaded
	}
	b := load("[state.blobs]\nurl = \"s3://bucket/some/prefix/\"\n").State.Blobs
	if b.AccessKey.Reveal() != "AKIDEXAMPLE" || b.SecretKey.Reveal() != "a-secret-of-the-bucket" || b.SessionToken.Reveal() != "a-token-of-the-session" {
		t.Error("the key of the environment is not used")
	}
	if b.Region != "eu-west-1" || b.Endpoint != "http://127.0.0.1:9000" {
		t.Errorf("region %q, endpoint %q", b.Region, b.Endpoint)
	}
	if bucket, prefix, err := b.Location(); bucket != "bucket" || prefix != "some/prefix/" || err != nil {
		t.Errorf("Location = %q, %q, %v", bucket, prefix, err)
	}
	b = load("[state.blobs]\nurl = \"s3://bucket\"\nendpoint = \"https://s3.example.com\"\nregion = \"r\"\naccess_key_id = \"id\"\nsecret_access_key = \"env:AWS_SECRET_ACCESS_KEY\"\ncache_dir = \"~/cache\"\n").State.Blobs
	if b.AccessKey.Reveal() != "id" || b.SessionToken.IsSet() || b.Region != "r" || b.Endpoint != "https://s3.example.com" || b.CacheDir != "/home/me/cache" {
		t.Errorf("the file is not used: %+v", b)
	}
	if b := load("").State.Blobs; b.AccessKey.IsSet() || b.Region != "" || b.IsSet() {
		t.Errorf("without a bucket: %+v", b)
	}
}

func TestBlobsProblems(t *testing.T) {
	for text, want := range map[string]string{
		`url = "https://bucket"`: "state.blobs.url",
		`url = "s3://"`:          "state.blobs.url",
		"url = \"s3://b\"\nendpoint = \"s3.example.com\"":       "state.blobs.endpoint",
		"url = \"s3://b\"\nendpoint = \"https://a:b@example\"":  "state.blobs.endpoint",
		"url = \"s3://b\"\naccess_key_id = \"id\"":              "state.blobs.access_key_id",
		"url = \"s3://b\"\nsecret_access_key = \"in the file\"": "state.blobs.secret_access_key",
	} {
		_, problems := LoadBytes("ctxgate.toml", []byte("[state.blobs]\n"+text), nil)
		if len(problems) == 0 || !containsPath(problems, want) {
			t.Errorf("%q: %v; want a problem with %s", text, problems, want)
		}
	}
}

func containsPath(problems Problems, path string) bool {
	for _, p := range problems {
		if p.Key == path {
			return true
		}
	}
	return false
}
