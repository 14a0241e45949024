// Package crash ends processes at every step of their work, so that a test can see
// what the next one makes of it.
//
// The test binary runs itself again as a victim, which works on a directory. Before
// it begins, the victim has the kernel stop it at each system call that changes
// something that outlives it: mounts, names, modes and owners, loop devices, and
// the beginning and end of programs that it runs. Those programs are stopped like
// itself. The test is notified of each such call before it has its effect, and lets it
// go on, or kills the victim there; the programs it had started are orphans then,
// and go on a moment later, as they do on a node.
//
// A package joins with a TestMain that calls [Main] and a test that calls [Run].
// KEELSON_TEST_KILLS says how many kills a test makes, if not its usual few: with
// as many as one life has changes, it is killed at each of them.
package crash
