// Package parity ties tests to the rows of docs/parity that they prove.
//
// A test calls Proves with the rows whose contract, if it were broken, would make the
// test fail. It calls ProvesPart where several tests are needed for a row, and Differs
// where the agent does something else on purpose, by a decision. When KEELSON_PARITY_DIR
// names a directory, a record for each row is written there once the test has ended. A
// test that fails removes its earlier record, and one that skips writes a record of the
// skip. The records are kept after a run, because a test whose result the go command has
// cached does not run again and still counts: nothing it depends on has changed. A record names the commit that
// was tested and a fingerprint of the code that the test goes through; it is void
// once that code differs. The directory should lie outside the module, since the
// go command does not cache tests that write inside it.
//
// tools/parity reads the records and prints the table of `make parity`.
package parity
