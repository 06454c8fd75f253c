"""Simulates from the live state: when will a job start?"""
