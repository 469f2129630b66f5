// Package clients holds no code: it shows that the official clients take a reply of several rounds
// for one, and that a provider as strict as the real ones takes what a round said. It stands apart
// from the package that it tests so that fuzzing that one need not build the clients.
package clients
