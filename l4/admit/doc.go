// Package admit decides who may open a connection or a UDP session: by prefix,
// by how fast they come, by how many are open. It has no sockets; both data
// paths ask the same Policy, once they know the client's address (behind a
// trusted proxy, that of the PROXY header).
//
// # Order of checks
//
//  1. Deny: an address in a denied prefix is refused (l4.RefusedACL), even if it
//     is allowed as well.
//  2. Allow: if there is an allow list, an address outside it is refused
//     (l4.RefusedACL). A list whose files are empty allows nobody.
//  3. SourceRate: the source has used up its rate (l4.RefusedRate).
//  4. Rate: the service has used up its rate (l4.RefusedRate).
//  5. PerSource: the source has as many open as it may (l4.RefusedLimit).
//
// The first check that fails names the outcome, and a refusal consumes nothing:
// neither rate is charged for what is not admitted. So a source beyond its own
// rate takes nothing from the others' share of the service's.
//
// # Rates
//
// A rate of r allows r new ones a second and, after a second of quiet, r at once,
// rounded down and at least one. It is kept by the generic cell rate algorithm
// (ITU-T I.371, 2004, annex A), whose whole state is one point in time: when the
// flow of admissions, at its rate, would have caught up with what was admitted.
//
// # Memory
//
// Open ones are counted exactly, in memory proportional to the sources that have
// any. Of the others at most 262 144 are remembered, and only until their rate
// has recovered, which takes a second, or 1/rate if that is longer. Beyond that the
// one seen longest ago is forgotten and starts with a full allowance. So the rate
// of a source is exact unless more than 262 144 others are admitted within that
// time, give or take 10 %, because each of 64 shards keeps its own part.
//
// # Reload
//
// A Policy made from an older one shares its counts and rates. A rate that
// changes keeps what it has used up, but never owes more than one burst of the
// new rate. Other masks make other sources, which begin afresh.
package admit
