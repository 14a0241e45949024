// Package config tests what flags, fields of the configuration file and feature gates do to
// the whole agent. It runs on the same fakes as the scenarios of test/script, most of it in
// virtual time. What only reads and checks the configuration is tested in internal/config.
package config
