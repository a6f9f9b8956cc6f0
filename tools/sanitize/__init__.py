"""Kernels of every structure beside memory that must not be touched: do they read or write it?"""
