// Package need skips tests on machines that lack what the tests need.
//
//	need.Root(t, "mounting")
//	need.Skip(t, "this machine has no SELinux")
//
// Under continuous integration, where the environment variable CI is set, a skipped
// test fails, so that a machine that changes cannot hide tests. The skips that are
// expected there are listed with their reasons in listed.go. A rule of test/rules
// keeps tests from calling the Skip methods of package testing.
package need
