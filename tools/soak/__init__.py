"""Mixed calls for as long as asked: is memory flat, is latency flat, does anything leak?"""
