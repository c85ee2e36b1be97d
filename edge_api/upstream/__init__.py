"""Keep-alive HTTP/1.1 connections to the datacenters' frontends."""
