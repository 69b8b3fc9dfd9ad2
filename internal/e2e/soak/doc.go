// Package soak tests the binary from outside, for as long as POISE_SOAK says: churn,
// faults and a reload every second. Afterwards everything must be back to where it began.
package soak
