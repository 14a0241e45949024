// Package await polls for what no event reports, within a bound. A test that reaches the bound fails with
// what it saw last. Where changes are notified, wait for the notification instead; in a synctest bubble
// let virtual time pass.
package await
