package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/poise-lb/poise/internal/config"
)

// defaultSocket is where a daemon answers unless its configuration says otherwise.
const defaultSocket = "/run/poise/admin.sock"

// socketFlags say which daemon a command speaks to.
type socketFlags struct{ socket, config string }

func (f *socketFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.socket, "socket", "", "admin `socket` of the daemon (default "+defaultSocket+")")
	cmd.Flags().StringVarP(&f.config, "config", "c", "", "take the socket from this configuration `file`")
	cmd.MarkFlagsMutuallyExclusive("socket", "config")
}

func (f *socketFlags) path() (string, error) {
	switch {
	case f.socket != "":
		return f.socket, nil
	case f.config == "":
		return defaultSocket, nil
	}
	c, err := config.Load(f.config)
	if err != nil {
		return "", fmt.Errorf("%w\nthe daemon was not asked; --socket finds it without the configuration", err)
	}
	return c.Admin.Socket, nil
}
