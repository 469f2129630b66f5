// Package sdktest tests readback with the official SDKs: they read a reply merged from several rounds as one,
// and a provider as strict as the real ones accepts the requests of later rounds. It is a separate package so
// that fuzzing readback does not build the SDKs.
package sdktest
