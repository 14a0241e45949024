// Package crash kills processes at every step of their work, so that a test can see
// how the next process recovers.
//
// The test binary runs itself again as a victim, which works on a directory. Before
// it begins, the victim has the kernel stop it at each system call that changes
// something that outlives it: mounts, names, modes and owners, loop devices, and
// the beginning and end of programs that it runs. Calls of those programs are stopped
// too. The test is notified of each such call before it has its effect. It lets the call
// continue, or kills the victim. The programs that a killed victim had started are orphans
// then, and continue a moment later, as they do on a node.
//
// A package joins with a TestMain that calls [Main] and a test that calls [Run].
// KEELSON_TEST_KILLS sets how many kills a test makes; by default it makes a few. With
// as many kills as one run has changes, the victim is killed at each of them.
package crash
